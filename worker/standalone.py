"""One offload_states / reload_states job with nothing but torch and DeepSpeed.

`orch repro JOB` prints this file with the job's own model in it. It reads job.json and ds_config.json
beside it and prints the seconds of every iteration, the slowest rank's, with the device idle.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum, OffloadStateTypeEnum
from torch import distributed

from worker.model import SimpleModel, Transformer

HERE = Path(__file__).resolve().parent
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def build_model(job: dict[str, Any]) -> Any:
    """The job's model: the linear stack, a transformer, or the user's own factory."""
    if job["factory"]:
        module, _, function = job["factory"].partition(":")
        return getattr(importlib.import_module(module), function)(job["axes"])
    if job["transformer"]:
        arch: Any = SimpleNamespace(**job["transformer"])
        return Transformer(arch)
    return SimpleModel(job["hidden_dim"], nlayers=job["nlayers"])


def make_batch(job: dict[str, Any], device: Any) -> tuple[Any, ...]:
    """One random batch, the same in every iteration."""
    count, hidden = job["micro_batch"], job["hidden_dim"]
    if job["transformer"]:
        tokens = torch.randint(job["transformer"]["vocab"], (count, job["seq_len"] + 1), device=device)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    data = torch.randn(count, hidden, device=device, dtype=DTYPES[job["dtype"]])
    return data, torch.randint(hidden, (count,), device=device)


def build_engine(job: dict[str, Any], config: dict[str, Any], device: Any) -> Any:
    """The DeepSpeed engine, its model made the way the ZeRO stage wants it."""
    torch.manual_seed(1234)
    with contextlib.ExitStack() as stack:
        if config["zero_optimization"]["stage"] == 3:
            stack.enter_context(deepspeed.zero.Init(config_dict_or_path=config))
        else:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(DTYPES[job["dtype"]])
            stack.enter_context(torch.device(device))
        model = build_model(job)
    tensors = list(model.parameters())
    for index, trains in enumerate(job["trainable"]):
        tensors[index].requires_grad_(trains)
    groups = [{"params": [tensors[index] for index in group]} for group in job["groups"]]
    parameters = groups if len(groups) > 1 else [tensor for tensor in tensors if tensor.requires_grad]
    return deepspeed.initialize(model=model, model_parameters=parameters, config=config)[0]


def timed(call: Any) -> float:
    """Seconds that the call takes on this rank, until the device is idle."""
    get_accelerator().synchronize()
    distributed.barrier()
    began = time.perf_counter()
    call()
    get_accelerator().synchronize()
    return time.perf_counter() - began


def run(job: dict[str, Any], config: dict[str, Any]) -> None:
    """The measured loop: step, offload, sleep, reload."""
    deepspeed.init_distributed()
    device = get_accelerator().device_name(int(os.environ["LOCAL_RANK"]))
    if get_accelerator().device_name() != "cpu":
        get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    engine = build_engine(job, config, device)
    batch = make_batch(job, device)
    names = job["included_state"]
    include = None if names is None else {OffloadStateTypeEnum[name] for name in names}
    if job["gc_freeze"]:
        gc.collect()
        gc.freeze()
    seconds = torch.zeros(job["iteration"], 2, dtype=torch.float64, device=device)
    for iteration in range(job["iteration"]):
        pin = job["pin_memory"] if iteration == 0 else job["pin_memory_then"]
        engine.backward(engine(*batch))
        engine.step()
        # `iteration` and `pin` are used at once, so the closures see their present values.
        seconds[iteration, 0] = timed(
            lambda pin=pin: engine.offload_states(
                include=include,
                device=OffloadDeviceEnum.cpu,
                pin_memory=pin,
                non_blocking=job["non_blocking"],
            )
        )
        time.sleep(job["dwell_s"])
        seconds[iteration, 1] = timed(lambda: engine.reload_states(non_blocking=job["reload_non_blocking"]))
    distributed.all_reduce(seconds, op=distributed.ReduceOp.MAX)
    if distributed.get_rank() == 0:
        report(job, seconds.tolist())
    distributed.barrier()
    # DeepSpeed's own teardown may abort a good run.
    os._exit(0)


def report(job: dict[str, Any], seconds: list[list[float]]) -> None:
    """A line an iteration, then the medians of those after warm-up."""
    for iteration, (offload_s, reload_s) in enumerate(seconds):
        kind = "cold" if iteration == 0 else "warm-up" if iteration < job["warmup"] else ""
        print(f"iteration {iteration}: offload {offload_s:.6f} s, reload {reload_s:.6f} s {kind}".rstrip())
    warm = seconds[job["warmup"] :]
    offload_s, reload_s = (median(row[column] for row in warm) for column in (0, 1))
    print(f"median of {len(warm)}: offload {offload_s:.6f} s, reload {reload_s:.6f} s", flush=True)


if __name__ == "__main__":
    run(json.loads((HERE / "job.json").read_text()), json.loads((HERE / "ds_config.json").read_text()))
