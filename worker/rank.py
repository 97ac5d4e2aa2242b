"""One rank of a job: read the job file, run the loop, deliver the records, leave.

``main`` is what the launchers call. It ends the process by ``os._exit``: interpreters that have held an
engine may abort while they are torn down, after a good run.

Until the last timed section the process holds torch, DeepSpeed and this package, nothing more: whatever
lies in the heap is walked by the garbage collection that is part of DeepSpeed's offload.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator.spec.dsconfig import ds_config_sha256, refusal, resolve_ds_config
from orchestrator.spec.jobfile import JobFile, load_job
from orchestrator.spec.models import axis_int, axis_value
from worker.failures import RankError, classify
from worker.recorder import Recorder, utc_now

if TYPE_CHECKING:
    from worker.device import Device
    from worker.devicecheck import Watch
    from worker.loop import Loop

STOP_FILE = "stop"
"""A neighbour repeats its loop until this file lies in its run directory."""


def main(job_path: str, rank: int, make_loop: Callable[..., Loop] | None = None) -> NoReturn:
    """Run one rank and end the process: 0 = its final record is delivered, 1 = it is not.

    Args:
        make_loop: makes another loop than ``Loop`` of the same parts, for measuring the instrument itself.
    """
    status = 1
    try:
        job = load_job(job_path)
        status = run(job, rank, make_loop)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(job: JobFile, rank: int, make_loop: Callable[..., Loop] | None = None) -> int:
    """Run one rank of ``job``; its exit status. Whatever goes wrong is in the spool when it returns."""
    is_measured = job.role == "measured"
    spool = Path(job.spool_dir) / f"rank{rank}.jsonl"
    recorder = Recorder(spool)
    try:
        delivered = _measure(job, rank, recorder, make_loop)
    except BaseException as error:
        failure = classify(error)
        print(failure.traceback, file=sys.stderr, flush=True)
        recorder.write(
            "error",
            rank=rank,
            status=failure.status,
            failure_kind=failure.failure_kind,
            message=failure.message,
            traceback=failure.traceback,
        )
        delivered = False
    recorder.close()
    if job.commit and is_measured and job.db_url:
        _commit(job, spool)
    if delivered and job.world_size > 1:
        # Otherwise the other ranks may be stuck, and leaving in order would wait for them. A single rank
        # has nobody to take leave of: the kernel takes its communicator down with it, and sooner.
        _leave_group()
    return 0 if delivered else 1


def _measure(job: JobFile, rank: int, recorder: Recorder, make_loop: Callable[..., Loop] | None) -> bool:
    """Set up, loop, final record; whether the states were intact and in place all along."""
    placement = job.placement(rank)
    _complete_environment(job, rank, placement.local_rank)
    recorder.write(
        "start",
        v=1,
        attempt_uid=job.attempt_uid,
        rank=rank,
        pid=os.getpid(),
        host=os.uname().nodename,
        device_uuid=placement.device_uuid,
        launch_mode=job.launch_mode,
        ranks=job.world_size,
    )
    reason = refusal(job.parameters, job.ds, job.accelerator)
    if reason is not None:
        raise RankError("unsupported", reason, status="skipped")
    numa_note, numa_node = _bind(job, placement.numa_node)
    # The heavy imports: in a forked rank they are there already.
    from worker import environment
    from worker.device import Device
    from worker.devicecheck import Watch

    watch = Watch(placement.device_uuid, lambda note: _report_overlap(rank, recorder, note))
    watch.look_before()
    device = Device(job.accelerator, placement.local_rank)
    _check_device(device, placement.device_uuid)
    watch.uuid = device.uuid
    if placement.local_rank == 0:
        recorder.write("environment", **environment.describe(device, job.env))
    loop, config = _prepare(job, rank, device, recorder, make_loop)
    bound = _gather(job.world_size, numa_node)
    watch.own_pids = _gather(job.world_size, os.getpid())
    watch.own_count = job.local_size + (loop.holder is not None)
    tracked = _settle_heap(job, bool(axis_value(job.parameters, "gc_freeze")))
    attempt: dict[str, object] = {
        "ds_config": json.dumps(config, sort_keys=True),
        "ds_config_sha256": ds_config_sha256(config),
        "alloc_conf": device.allocator_settings(),
        "tracked_objects": tracked,
        "numa_bound": json.dumps(bound) if any(node is not None for node in bound) else None,
    }
    if rank == 0:
        recorder.write("attempt", **attempt)
    if numa_note:
        print(f"orch: {numa_note}", file=sys.stderr, flush=True)
    iterations = _loop(job, loop, recorder, _settle, watch)
    if loop.problems:
        return False
    recorder.write("final", rank=rank, iterations=iterations, at=utc_now())
    return True


def _complete_environment(job: JobFile, rank: int, local_rank: int) -> None:
    """What every launcher sets, for a rank that was started by hand."""
    wanted = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(job.world_size),
        "MASTER_ADDR": job.master_addr,
        "MASTER_PORT": str(job.port),
        "DS_ACCELERATOR": job.accelerator,
        "ORCH_ATTEMPT": job.attempt_uid,
    }
    os.environ.update(wanted)
    # With LOCAL_SIZE DeepSpeed's CPU op leaves its shared memory behind for ever.
    os.environ.pop("LOCAL_SIZE", None)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _bind(job: JobFile, device_node: int | None) -> tuple[str | None, int | None]:
    """Bind to the NUMA node that the cell asks for, before memory is touched: note, node."""
    from worker import numa

    axis = str(axis_value(job.parameters, "numa"))
    node = numa.chosen_node(axis, device_node)
    if node is None:
        note = "numa: device asked for, but the device's node is unknown" if axis == "device" else None
        return note, None
    note = numa.bind(node)
    return note, None if note and note.startswith("cannot") else node


def _check_device(device: Device, wanted_uuid: str | None) -> None:
    if wanted_uuid and device.uuid and device.uuid.lower() != wanted_uuid.lower():
        raise RankError("wrong_device", f"runs on {device.uuid} instead of {wanted_uuid}")


def _prepare(
    job: JobFile, rank: int, device: Device, recorder: Recorder, make_loop: Callable[..., Loop] | None
) -> tuple[Loop, dict[str, object]]:
    """The process group, the compiled optimizer, the engine, and the loop around it."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    from orchestrator.spec.bytes import predict_values
    from worker.data import make_batch
    from worker.engine import SEED, Sleeper, build_engine
    from worker.holder import HolderProcess
    from worker.loop import Loop
    from worker.ops import load_comm_op, load_fused_adam

    values = job.parameters
    notices = load_comm_op(get_accelerator(), job.start_timeout_s)
    if axis_value(values, "optimizer") == "adam":
        notices += load_fused_adam(get_accelerator(), job.start_timeout_s)
    for notice in notices:
        print(f"orch: {notice}", file=sys.stderr, flush=True)
    deepspeed.init_distributed(
        dist_backend="nccl" if device.is_cuda else "gloo", verbose=False, rank=rank, world_size=job.world_size
    )
    config = resolve_ds_config(values, job.ds)
    # DeepSpeed may write into the mapping that it gets.
    engine, shape = build_engine(values, json.loads(json.dumps(config)), device)
    import torch

    torch.manual_seed(SEED + rank)
    hold = axis_int(values, "hold_bytes")
    holder = HolderProcess(device.uuid or "cpu", hold) if hold else None
    loop = (make_loop or Loop)(
        values=values,
        engine=engine,
        sleeper=Sleeper(engine, values),
        batch=make_batch(engine.module, values, device.torch_device),
        device=device,
        rank=rank,
        predicted=predict_values(values, job.ds, shape).per_state,
        # The supervisor follows a neighbour by its start and end; its figures are nobody's.
        recorder=recorder if job.role == "measured" else Recorder(None),
        barrier=_barrier(device),
        holder=holder,
    )
    return loop, config


def _barrier(device: Device) -> Callable[[], None]:
    import torch.distributed as dist

    if device.is_cuda:
        index = device.index
        return lambda: dist.barrier(device_ids=[index])
    return dist.barrier


def _gather(ranks: int, value: Any) -> list[Any]:
    """``value`` of every rank, in order."""
    import torch.distributed as dist

    if ranks == 1:
        return [value]
    gathered: list[Any] = [None] * ranks
    dist.all_gather_object(gathered, value)
    return gathered


def _settle_heap(job: JobFile, freeze: bool) -> int:
    """Collect once before the loop and count what the collector tracks.

    A fork server's frozen objects would make a forked rank look better than a spawned one: from here on
    nothing is frozen, and a rank's collections cost what they cost anywhere. A fork's first full
    collection would be slower, since it writes to every page that is still shared with the server.
    """
    # Before the thaw: the server collected its own objects, and this rank has only its own to collect.
    gc.collect()
    if job.launch_mode == "fork":
        gc.unfreeze()
    # The list holds a reference to each object, so every page with one is written to, and thereby copied,
    # here instead of in the first measured collection.
    tracked = len(gc.get_objects())
    if freeze:
        gc.freeze()
    return tracked


def _settle(loop: Loop) -> None:
    loop.device.synchronize()
    loop.barrier()


def _loop(job: JobFile, loop: Loop, recorder: Recorder, settle: Callable[[Loop], None], watch: Watch) -> int:
    """All iterations; how many were run."""
    values = job.parameters
    total = axis_int(values, "iteration") + axis_int(values, "instrumented")
    settle(loop)
    loop.begin()
    recorder.write("timed_from", at=utc_now())
    started = perf_counter()
    if job.role == "neighbour":
        total = _repeat_until_stopped(job, loop)
    else:
        for iteration in range(total):
            loop.iterate(iteration)
            watch.look(iteration)
    settle(loop)
    recorder.write("timed_to", at=utc_now(), loop_s=perf_counter() - started)
    return total


def _repeat_until_stopped(job: JobFile, loop: Loop) -> int:
    """Keep the link and the host busy beside a measured job; all ranks stop at the same iteration."""
    import torch
    import torch.distributed as dist

    stop, count = Path(job.run_dir) / STOP_FILE, 0
    while True:
        flag = torch.tensor([int(stop.exists())], device=loop.device.torch_device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item():
            return count
        loop.iterate(0 if count == 0 else 1)
        count += 1


def _report_overlap(rank: int, recorder: Recorder, note: str) -> None:
    """Foreign processes on the device make the attempt ``overlapped``; every rank tells of its own."""
    recorder.write("attempt", overlapped=True, overlap_note=f"rank {rank} {note}")


def _commit(job: JobFile, spool: Path) -> None:
    """Write the spool into the database; if that fails, the spool stays and the next orch takes it in."""
    try:
        from orchestrator.store import open_store

        with open_store(str(job.db_url)) as store:
            store.intake_file(job.attempt_id, spool)
    except Exception as error:
        print(f"orch: records stay in {spool}: {error}", file=sys.stderr, flush=True)


def _leave_group() -> None:
    """Take the process group down as DeepSpeed does it; a fault here comes after the final record."""
    try:
        dist = sys.modules.get("deepspeed.comm")
        if dist is not None and dist.is_initialized():
            dist.destroy_process_group()
    except Exception as error:
        print(f"orch: leaving the process group: {error}", file=sys.stderr, flush=True)


def _command_line() -> None:
    parser = argparse.ArgumentParser(prog="python -m worker.rank", description="Run one rank of a job file.")
    parser.add_argument("--job", required=True, help="the job file")
    parser.add_argument("--rank", type=int, default=None, help="global rank; default $RANK")
    parser.add_argument("--local_rank", "--local-rank", type=int, default=-1, help="accepted, not used")
    options = parser.parse_args()
    rank = options.rank if options.rank is not None else int(os.environ.get("RANK", "0"))
    main(options.job, rank)


if __name__ == "__main__":
    _command_line()
