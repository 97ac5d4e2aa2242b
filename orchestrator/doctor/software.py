"""What a job needs installed: torch, DeepSpeed, a compiler, and the ops that DeepSpeed builds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestrator.doctor.devices import Driver
from orchestrator.doctor.finding import Finding, Settings, error, ok, warn
from orchestrator.doctor.jitlocks import extensions_dirs, extensions_root, find_locks
from orchestrator.doctor.linking import check_linking, folder_of
from orchestrator.spec.jobfile import INSTALL_WORKER

_OP = "fused_adam"
_NEEDED = ("torch", "deepspeed")


def installed(package: str) -> str | None:
    """The version of an installed distribution, without importing it; None if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def missing_packages() -> list[Finding]:
    """An error if no job can run in this Python, because torch or deepspeed is not there."""
    absent = " and ".join(name for name in _NEEDED if folder_of(name) is None)
    if not absent:
        return []
    message = f"{absent} not installed: planning and reporting work, jobs cannot run here"
    return [error("versions", message, _python_in_use(), INSTALL_WORKER)]


def check_versions(driver: Driver | str) -> list[Finding]:
    """torch and deepspeed are there, new enough, and fit the driver."""
    if absent := missing_packages():
        return absent
    # What was built by hand may not say which version it is.
    torch, deepspeed = (installed(name) or "(of unknown version)" for name in _NEEDED)
    evidence = _python_in_use()
    findings = [ok("versions", f"torch {torch} · deepspeed {deepspeed}", evidence)]
    if () < _numbers(deepspeed) < (0, 17, 6):
        message = f"deepspeed {deepspeed} cannot offload the states of ZeRO-1 and ZeRO-2 (0.17.6 can)"
        findings.append(warn("versions", message, mend="pip install 'deepspeed>=0.17.6'"))
    cuda = re.search(r"\+cu(\d+)(\d)$", torch)
    if isinstance(driver, Driver) and driver.devices:
        if cuda and (int(cuda[1]), int(cuda[2])) > driver.cuda and int(cuda[1]) > driver.cuda[0]:
            message = (
                f"torch is built for CUDA {cuda[1]}.{cuda[2]}, the driver ends at {_dotted(driver.cuda)}"
            )
            mend = "update the driver, or install a torch built for an older CUDA"
            findings.append(error("versions", message, f"driver {driver.version}", mend))
        if "+cpu" in torch:
            message = "torch is built for the CPU only: the GPUs of this host are not used"
            findings.append(error("versions", message, f"torch {torch}", "pip install a CUDA build of torch"))
    return findings


def check_build(settings: Settings, driver: Driver | str) -> list[Finding]:
    """FusedAdam is built or can be built."""
    has_gpu = isinstance(driver, Driver) and bool(driver.devices)
    if unlinkable := list(check_linking(settings.environ, uses_cuda=has_gpu)):
        # Whatever is built already: torch links anew as soon as its own folder is another.
        return [*unlinkable, *_no_ninja(settings), *_arch_list(settings)]
    built = _built_op(settings)
    if built is not None:
        # Not the compiler: ninja finds nothing to do, but torch will not load the op without ninja.
        return [*_built_for(built), *_no_ninja(settings), *_arch_list(settings)]
    missing = [*_missing_tools(settings, has_gpu), *_no_place_to_build(settings)]
    if missing:
        return [*missing, *_arch_list(settings)]
    message = "ops not built yet: the first sweep builds them before it times anything"
    folder = " or ".join(map(str, extensions_dirs(settings.environ))) or "no extension folder yet"
    return [ok("build", message, folder), *_arch_list(settings), *_cuda_mismatch(settings, has_gpu)]


def _built_op(settings: Settings) -> Path | None:
    for folder in extensions_dirs(settings.environ):
        for path in folder.glob(f"{_OP}/{_OP}*.so"):
            return path
    return None


def _built_for(op: Path) -> Iterator[Finding]:
    """The op is there; is it this environment's? ninja builds anew when the paths of the headers differ."""
    yield ok("build", "ops built", str(op))
    try:
        text = (op.parent / "build.ninja").read_text(errors="replace")
    except OSError:
        return
    headers = re.search(r"-isystem (\S+)/torch/include\b", text)
    here = Path(sysconfig.get_paths()["purelib"])
    if headers and headers[1] not in (str(here), *sys.path):
        message = f"another environment built DeepSpeed's ops ({headers[1]}): taking turns, each builds anew"
        mend = f"export TORCH_EXTENSIONS_DIR={Path(sys.prefix) / 'torch_extensions'}"
        yield warn("build", message, str(op.parent / "build.ninja"), mend)


def _no_place_to_build(settings: Settings) -> Iterator[Finding]:
    root = extensions_root(settings.environ)
    there = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        message = "no place to build DeepSpeed's ops: ZeRO-3 jobs fail"
        mend = "export TORCH_EXTENSIONS_DIR=/a/folder/that/you/can/write"
        yield error("build", message, f"{there} cannot be written, and {root} belongs there", mend)


def _missing_tools(settings: Settings, has_gpu: bool) -> Iterator[Finding]:
    path = settings.environ.get("PATH")
    compiler = settings.environ.get("CXX", "c++")
    if not (shutil.which(compiler, path=path) or shutil.which("g++", path=path)):
        message = "no C++ compiler: DeepSpeed cannot build FusedAdam, ZeRO-3 jobs fail"
        yield error("compiler", message, f"neither {compiler} nor g++ on PATH", "apt-get install g++")
    yield from _no_ninja(settings)
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.exists():
        message = "Python's headers are missing: DeepSpeed's ops cannot be built"
        yield error("compiler", message, f"no {header}", f"apt-get install python{_python()}-dev")
    if has_gpu and _nvcc(settings) is None:
        message = "no nvcc: FusedAdam cannot be built; only ZeRO-1 and 2 with optimizer: torch_adam run"
        mend = "install the CUDA toolkit of torch's CUDA version and set CUDA_HOME"
        yield error("compiler", message, "neither in CUDA_HOME nor /usr/local/cuda nor on PATH", mend)


def _no_ninja(settings: Settings) -> Iterator[Finding]:
    if installed("ninja") is None and not shutil.which("ninja", path=settings.environ.get("PATH")):
        message = "no ninja: torch can neither build nor load DeepSpeed's ops"
        yield error("compiler", message, "PATH and Python packages", "pip install ninja")


def _nvcc(settings: Settings) -> str | None:
    home = settings.environ.get("CUDA_HOME") or settings.environ.get("CUDA_PATH") or "/usr/local/cuda"
    inside = Path(home) / "bin" / "nvcc"
    return str(inside) if inside.exists() else shutil.which("nvcc", path=settings.environ.get("PATH"))


def _cuda_mismatch(settings: Settings, has_gpu: bool) -> Iterator[Finding]:
    """DeepSpeed refuses to build with an nvcc of another major version than torch's CUDA."""
    nvcc = _nvcc(settings) if has_gpu else None
    wanted = re.search(r"\+cu(\d+)(\d)$", installed("torch") or "")
    if nvcc is None or wanted is None or settings.environ.get("DS_SKIP_CUDA_CHECK") == "1":
        return
    try:
        said = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return
    found = re.search(r"release (\d+)\.(\d+)", said)
    if found and found[1] != wanted[1]:
        have, need = f"{found[1]}.{found[2]}", f"{wanted[1]}.{wanted[2]}"
        message = f"nvcc is CUDA {have}, torch is CUDA {need}: DeepSpeed refuses to build"
        yield error("compiler", message, nvcc, f"export CUDA_HOME=/usr/local/cuda-{need}")


def _arch_list(settings: Settings) -> Iterator[Finding]:
    """DeepSpeed's builder reads ``9.0a`` as two integers and crashes; orch's own ranks rewrite it."""
    text = settings.environ.get("TORCH_CUDA_ARCH_LIST", "")
    bad = [part for part in re.split(r"[;\s]+", text) if re.search(r"\d[a-z]+(\+|$)", part)]
    if bad:
        plain = re.sub(r"(\d)[a-z]+", r"\1", text)
        minor = re.sub(r".*\.", "", bad[0]).removesuffix("+PTX")
        message = f"TORCH_CUDA_ARCH_LIST={text} makes DeepSpeed's builder crash (invalid literal '{minor}')"
        evidence = "environment; orch's own ranks build without the letter, other programs crash"
        yield warn("arch", message, evidence, f'export TORCH_CUDA_ARCH_LIST="{plain}"')


def check_locks(settings: Settings) -> list[Finding]:
    """No lock of a dead build: every job would wait for it for ever."""
    findings = []
    for lock in find_locks(settings.environ, settings.proc):
        age = f"{lock.age_s / 3600:.1f} h" if lock.age_s >= 3600 else f"{lock.age_s / 60:.0f} min"
        if lock.is_stale:
            message = f"stale build lock of {lock.op}, owner is gone ({age} old): every job would hang"
            findings.append(error("stale-lock", message, str(lock.path), "orch doctor --fix stale-lock"))
        elif lock.holder_pid is None:
            message = f"build lock of {lock.op}, {age} old; its owner cannot be seen from here"
            mend = f"if no build of that user runs on any host: rm {lock.path}"
            findings.append(warn("stale-lock", message, str(lock.path), mend))
        else:
            message = f"{lock.op} is being built now by process {lock.holder_pid} ({age})"
            findings.append(ok("stale-lock", message, str(lock.path)))
    return findings


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0])[:3])


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _python_in_use() -> str:
    return f"{sys.executable}, Python {sys.version.split()[0]}"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
