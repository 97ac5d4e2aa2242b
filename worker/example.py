"""The benchmark of DeepSpeed's offload_states example: same call, same lines, same log row.

It measures as the rest of orch does (``worker.clocks``): the figures are this rank's seconds until its
device is idle, from a common start of all ranks, not the host's wall clock between two barriers.

Importing it completes the variables of a rank that no launcher started, because a script's ``zero.Init``
makes the process group before ``run_model`` is called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deepspeed
import deepspeed.comm as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum, OffloadStateTypeEnum

from worker.alone import stand_alone
from worker.clocks import measure
from worker.data import random_dataloader
from worker.model import DTYPES, SimpleModel
from worker.ops import load_comm_op, load_fused_adam

LOG_FILE = "offload_states.log"

stand_alone()


def run_model(
    model: Any,
    config_dict: dict[str, Any],
    hidden_dim: int,
    dtype: Any,
    include: Iterable[Any] | None,
    pin_memory: bool,
    non_blocking: bool,
    iteration: int,
    warmup: int,
) -> None:
    """Train ``iteration`` steps and put the engine to sleep after each; rank 0 prints and logs.

    Appends ``pin_memory,non_blocking,offload_s,load_s`` to ``offload_states.log``: means over the
    iterations after ``warmup``.
    """
    if warmup >= iteration:
        raise ValueError(f"warmup ({warmup}) must be less than iteration ({iteration})")
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config_dict)
    accelerator = get_accelerator()
    samples = iteration * engine.train_micro_batch_size_per_gpu()
    loader = random_dataloader(engine, samples, hidden_dim, engine.device, dtype)
    is_on_cpu = accelerator.device_name().startswith("cpu")
    offload_s: list[float] = []
    load_s: list[float] = []
    dist.barrier()
    for index, batch in enumerate(loader):
        engine.backward(engine(batch[0], batch[1]))
        engine.step()

        def offload() -> None:
            engine.offload_states(
                include=include,
                device=OffloadDeviceEnum.cpu,
                pin_memory=pin_memory,
                non_blocking=non_blocking,
            )

        before = accelerator.memory_allocated()
        down = measure(offload, accelerator.synchronize, dist.barrier)
        after = accelerator.memory_allocated()
        up = measure(engine.reload_states, accelerator.synchronize, dist.barrier)
        # On a CPU there is no device memory to free.
        if not is_on_cpu and not after < min(before, accelerator.memory_allocated()):
            raise RuntimeError(f"iteration {index}: offload freed no memory ({before} -> {after} bytes)")
        offload_s.append(down.done_s)
        load_s.append(up.done_s)
        if dist.get_rank() == 0:
            print(
                f"Memory usage ({index}): include={include}, pin_memory={pin_memory}, "
                f"non_blocking={non_blocking} alloc_before_offload={before} alloc_after_offload={after}",
                flush=True,
            )
    if dist.get_rank() == 0:
        _report(pin_memory, non_blocking, offload_s[warmup:], load_s[warmup:])
    # ZeRO-3 leaks without it.
    engine.destroy()


def _report(pin_memory: bool, non_blocking: bool, offload_s: list[float], load_s: list[float]) -> None:
    offload, load = sum(offload_s) / len(offload_s), sum(load_s) / len(load_s)
    with Path(LOG_FILE).open("a") as log:
        log.write(f"{int(pin_memory)},{int(non_blocking)},{offload},{load}\n")
    print(
        f"Summary: pin_memory={pin_memory} non_blocking={non_blocking} offload={offload} load={load}",
        flush=True,
    )


def run_example(
    *,
    included_state: str | None,
    pin_memory: bool,
    non_blocking: bool,
    nlayers: int,
    hidden_dim: int,
    dtype: str,
    iteration: int,
    warmup: int,
) -> None:
    """The example's main: a ZeRO-3 linear stack through ``run_model``. The launcher's variables are set."""
    from orchestrator.spec.dsconfig import refusal, resolve_ds_config

    kind = "cpu" if get_accelerator().device_name() == "cpu" else "cuda"
    reason = refusal({"dtype": dtype}, {}, kind)
    if reason is not None:
        print(f"python -m worker: error: --dtype torch.{dtype}: {reason}", file=sys.stderr, flush=True)
        sys.exit(2)
    for notice in load_comm_op(get_accelerator()) + load_fused_adam(get_accelerator()):
        print(f"orch: {notice}", file=sys.stderr, flush=True)
    deepspeed.init_distributed(verbose=False)
    config = resolve_ds_config({"dtype": dtype, "zero_stage": 3, "micro_batch": 1}, {})
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = SimpleModel(hidden_dim, nlayers=nlayers)
    include = None if included_state is None else [OffloadStateTypeEnum[included_state]]
    run_model(model, config, hidden_dim, DTYPES[dtype], include, pin_memory, non_blocking, iteration, warmup)
