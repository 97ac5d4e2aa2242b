"""Does the shell take torch's own folder as one word? torch's builder puts it into the link command as it is.

The other folders of a build are quoted: where ops are built, DeepSpeed's sources, Python's headers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from orchestrator.doctor.finding import Finding, error

_UNQUOTED = "f'-L{TORCH_LIB_PATH}'"
"""How ``cpp_extension.py`` of torch names the folder to the linker; a torch that quotes it needs no mend."""
_PREBUILT = "ops/adam/fused_adam_op*.so"
"""FusedAdam in a DeepSpeed that was installed with its ops: nothing is built then."""
_MEND = (
    "keep the environment in a folder without blanks or quotes in its path,"
    " e.g. python3 -m venv /path/to/venv, or make sweep VENV=/path/to/venv"
)


def folder_of(package: str) -> Path | None:
    """Where a package would be imported from, without importing it; None if it is not there."""
    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def check_linking(environ: Mapping[str, str], *, uses_cuda: bool = False) -> Iterator[Finding]:
    """An error for each folder that no build of DeepSpeed's ops gets past."""
    torch, deepspeed = folder_of("torch"), folder_of("deepspeed")
    if torch is None or (deepspeed is not None and any(deepspeed.glob(_PREBUILT))):
        return
    builder = torch / "utils" / "cpp_extension.py"
    try:
        is_quoted = _UNQUOTED not in builder.read_text(encoding="utf-8")
    except OSError:
        return
    if is_quoted:
        return
    if not _is_one_word(torch):
        message = f"no op can be built with torch in {str(torch)!r}: jobs with optimizer: adam fail"
        yield error("build", message, f"the linker gets -L{torch / 'lib'} unquoted ({builder.name})", _MEND)
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if uses_cuda and home and not _is_one_word(home):
        message = f"no op can be built with CUDA in {home!r}: jobs with optimizer: adam fail"
        mend = "export CUDA_HOME=/a/link/to/it/without/blanks"
        yield error("build", message, f"the linker gets -L{home}/lib64 unquoted ({builder.name})", mend)


def _is_one_word(path: Path | str) -> bool:
    return shlex.quote(str(path)) == str(path)
