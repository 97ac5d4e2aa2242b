"""The command line of DeepSpeed's offload_states example.

``python -m worker``, ``deepspeed --module worker`` and ``deepspeed worker/__main__.py`` all work; without a
launcher it is one rank on the first device.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

if not __package__:
    # Run as a file: its own folder is on the path, where the package's parent belongs.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32")
STATES = ("optim_states", "hp_params", "lp_params", "lp_grads", "contiguous_grad_buffer")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options; exit 2 with one message for what cannot be run."""
    parser = argparse.ArgumentParser(
        prog="python -m worker", description="Time offload_states and reload_states."
    )
    parser.add_argument("--included_state", choices=STATES, default=None, help="one state; default: all")
    parser.add_argument("--pin_memory", action="store_true", help="offload into pinned memory")
    parser.add_argument("--non_blocking", action="store_true", help="offload without blocking")
    parser.add_argument("--nlayers", type=int, default=1, help="linear layers (default 1)")
    parser.add_argument("--hidden_dim", type=int, default=1024, help="width of a layer (default 1024)")
    parser.add_argument("--dtype", choices=DTYPES, default="torch.bfloat16", help="default torch.bfloat16")
    parser.add_argument("--local_rank", "--local-rank", type=int, default=-1, help="set by a launcher")
    parser.add_argument("--iteration", type=int, default=10, help="iterations, warm-up included (default 10)")
    parser.add_argument("--warmup", type=int, default=5, help="leading iterations left out (default 5)")
    options = parser.parse_args(arguments)
    for name, least in (("nlayers", 1), ("hidden_dim", 1), ("iteration", 1), ("warmup", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name} {getattr(options, name)}: must be at least {least}")
    if options.warmup >= options.iteration:
        parser.error(
            f"--warmup {options.warmup} leaves nothing of --iteration {options.iteration}: "
            "warmup must be less than iteration"
        )
    if options.dtype == "torch.float16" and os.environ.get("DS_ACCELERATOR") == "cpu":
        parser.error("--dtype torch.float16: fp16 does not run on a CPU")
    return options


def need_torch() -> None:
    """Exit 2 with the command that mends it if this is a bare install."""
    absent = " and ".join(name for name in ("torch", "deepspeed") if find_spec(name) is None)
    if absent:
        from orchestrator.spec.jobfile import INSTALL_WORKER

        print(f"python -m worker: {absent} not installed; {INSTALL_WORKER}", file=sys.stderr)
        sys.exit(2)


def main(arguments: list[str] | None = None) -> None:
    """Run the example; ends the process, because a torn-down engine may abort after a good run."""
    options = parse(arguments)
    need_torch()
    from worker.alone import stand_alone

    stand_alone(local_rank=options.local_rank)
    from worker.example import run_example

    run_example(
        included_state=options.included_state,
        pin_memory=options.pin_memory,
        non_blocking=options.non_blocking,
        nlayers=options.nlayers,
        hidden_dim=options.hidden_dim,
        dtype=options.dtype.removeprefix("torch."),
        iteration=options.iteration,
        warmup=options.warmup,
    )
    import deepspeed.comm as dist

    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
