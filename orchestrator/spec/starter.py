"""What does a first sweep file look like? A commented one, sized for the host it is written on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import SpecError
from orchestrator.spec.axes import AXES, Axis
from orchestrator.spec.bytes import predict
from orchestrator.spec.cell import make_cell

_DEVICE_SHARE = 0.5
_HOST_SHARE = 0.4
_WIDTHS = (1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True, slots=True)
class Host:
    """What the starter is sized by; ``device_bytes`` is 0 without a GPU."""

    devices: int
    device_name: str
    device_bytes: int
    ram_bytes: int


def starter(host: Host, name: str) -> str:
    """The text of a sweep file that runs on this host and explains itself."""
    return _TEXT.format(
        name=re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "sweep",
        host=_described(host),
        hidden_dim=hidden_dim_for(host),
        num_gpus=_num_gpus_line(host),
        sizes=_sizes_comment(host),
        iteration="10" if host.devices else "6 ",
        warmup="5" if host.devices else "2",
        axes="\n".join(_axis_line(axis) for axis in AXES),
    )


def write_starter(path: Path, text: str, *, force: bool = False) -> None:
    """Write the starter; an existing file stays unless ``force``.

    Raises:
        SpecError: the file exists or cannot be written.
    """
    try:
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise SpecError("exists already", str(path), "choose another name, or --force") from error
    except OSError as error:
        raise SpecError(f"cannot be written: {error.strerror}", str(path)) from error


def hidden_dim_for(host: Host) -> int:
    """The widest of a few widths whose 4 layers take no more than a share of the device and the RAM."""
    if not host.devices:
        return 256
    best = _WIDTHS[0]
    for width in _WIDTHS:
        prediction = predict(make_cell({"hidden_dim": width, "nlayers": 4}))
        gpu_bytes, pinned_bytes = prediction.gpu_bytes or 0, prediction.pinned_bytes or 0
        if gpu_bytes < host.device_bytes * _DEVICE_SHARE and pinned_bytes < host.ram_bytes * _HOST_SHARE:
            best = width
    return best


def _described(host: Host) -> str:
    ram = f"{host.ram_bytes / 1e9:.0f} GB of host memory"
    if not host.devices:
        return f"no GPU, {ram}: jobs run on the CPU and show the logic, not the cost"
    return f"{host.devices} × {host.device_name} ({host.device_bytes / 1e9:.0f} GB), {ram}"


def _num_gpus_line(host: Host) -> str:
    if host.devices > 1:
        return f"  num_gpus: 1                 # ranks on each node; this host has {host.devices} devices"
    return "  num_gpus: 1                 # ranks on each node"


def _sizes_comment(host: Host) -> str:
    width = hidden_dim_for(host)
    return f"[{width // 2}, {width}]"


def _axis_line(axis: Axis) -> str:
    default = str(axis.default).lower() if isinstance(axis.default, bool) else axis.default
    shown = "null" if default is None else default
    return f"#   {axis.name:<20} {shown!s:<10} {axis.help}"


_TEXT = """\
# A sweep of orch. This host: {host}.
#   orch plan FILE      shows the jobs; starts nothing
#   orch sweep FILE     runs them, or continues where it stopped
#   orch report         shows what was measured
# YAML 1.2: true and false are the booleans, 1e6 is a number, a key may stand once.

name: {name}                  # the same name continues the sweep

defaults:                     # one value per axis; what is not named has its built-in default
  model: linear               # as DeepSpeed's example; or transformer, llama-3-8b, qwen2.5-7b, ...
  nlayers: 4
  hidden_dim: {hidden_dim:<15} # width of a layer
  dtype: bfloat16             # bfloat16, float16, float32
  zero_stage: 3
{num_gpus}
  iteration: {iteration}               # iterations, warm-up included
  warmup: {warmup}                   # left out of the medians

matrix:                       # every combination
  pin_memory: [true, false]
  non_blocking: [true, false]
  included_state: [all, keep_lp_params]   # all, a state, a preset, or a list of states in brackets
  # hidden_dim: {sizes}
  # ds.zero_optimization.sub_group_size: [1e8, 1e9]     any DeepSpeed key

# zip:                        # lists that advance together
#   - nlayers: [4, 8]
#     hidden_dim: [4096, 2048]

# when:                       # an axis counts only where the condition holds; equal cells merge
#   - axis: reload_non_blocking
#     if: {{pin_memory: true}}

# exclude:                    # combinations to leave out; {{lt, le, gt, ge, ne}} compare
#   - {{hidden_dim: {{gt: 8192}}, dtype: float32}}

# cells:                      # further cells over the defaults, never excluded
#   - {{included_state: [optim_states, hp_params], gc_freeze: true}}

repeats: 3                    # in rounds over all cells, so that drift falls on all alike
# order: interleave           # or random (with seed), sequential

limits:
  timeout: 1800               # seconds for one job
  retries: 1
  consecutive_failures: 10    # the sweep stops after so many in a row

engine: local                 # or slurm, ray:  engine: {{name: slurm, partition: gpu}}
launcher: fork                # or spawn, deepspeed (the real command)

# ds:                         # DeepSpeed configuration of every cell; or  ds: "@ds_config.json"
#   zero_optimization:
#     overlap_comm: true
# env:                        # environment of every cell
#   NCCL_DEBUG: WARN

# All axes and their built-in defaults:
{axes}
"""
