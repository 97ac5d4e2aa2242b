"""Stale build locks and leftovers in shared memory: found, judged and removed."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from orchestrator.doctor.examine import Fix, mend, worst
from orchestrator.doctor.finding import Settings, Severity
from orchestrator.doctor.jitlocks import clear_stale_locks, extensions_dirs, find_locks
from orchestrator.doctor.memory import check_leftovers, find_leftovers
from orchestrator.doctor.software import check_build, check_locks


@pytest.fixture
def extensions(tmp_path: Path) -> Path:
    folder = tmp_path / "extensions" / "fused_adam"
    folder.mkdir(parents=True)
    return folder


def settings_for(extensions: Path, **environ: str) -> Settings:
    return Settings("orch.db", environ={"TORCH_EXTENSIONS_DIR": str(extensions.parent), **environ})


def test_b13_lock_whose_owner_is_gone_is_an_error_that_names_its_mend(extensions: Path) -> None:
    (extensions / "lock").touch()
    (finding,) = check_locks(settings_for(extensions))
    assert finding.severity is Severity.ERROR
    assert "stale build lock of fused_adam" in finding.message
    assert finding.mend == "orch doctor --fix stale-lock"
    assert finding.evidence == str(extensions / "lock")


def test_b13_fix_removes_the_stale_lock_and_nothing_else(extensions: Path) -> None:
    (extensions / "lock").touch()
    (extensions / "main.o").touch()
    settings = settings_for(extensions)
    assert mend(Fix.STALE_LOCK, settings) == [f"removed {extensions / 'lock'}"]
    assert [path.name for path in extensions.iterdir()] == ["main.o"]
    assert check_locks(settings) == []


def test_b13_lock_that_a_living_build_holds_is_left_alone(extensions: Path) -> None:
    # As torch's FileBaton does it: exclusive, and kept open.
    descriptor = os.open(extensions / "lock", os.O_CREAT | os.O_EXCL)
    try:
        settings = settings_for(extensions)
        (lock,) = find_locks(settings.environ)
        assert lock.holder_pid == os.getpid()
        assert clear_stale_locks(settings.environ) == []
        assert (extensions / "lock").exists()
        assert [finding.severity for finding in check_locks(settings)] == [Severity.OK]
    finally:
        os.close(descriptor)


def test_locks_under_torchs_default_folder_are_found(tmp_path: Path) -> None:
    op = tmp_path / ".cache" / "torch_extensions" / "py311_cu130" / "fused_adam"
    op.mkdir(parents=True)
    (op / "lock").touch()
    environ = {"HOME": str(tmp_path)}
    assert extensions_dirs(environ) == [op.parent]
    assert [lock.path for lock in find_locks(environ)] == [op / "lock"]


def test_built_op_is_seen(extensions: Path) -> None:
    (extensions / "fused_adam.so").touch()
    findings = check_build(settings_for(extensions), "no driver")
    assert [(finding.severity, finding.message) for finding in findings] == [(Severity.OK, "ops built")]


def test_built_op_without_ninja_is_an_error(extensions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.doctor.software.installed", lambda package: None)
    (extensions / "fused_adam.so").touch()
    findings = check_build(settings_for(extensions, PATH="/nonexistent"), "no driver")
    assert [(f.severity, f.message.partition(":")[0]) for f in findings] == [
        (Severity.OK, "ops built"), (Severity.ERROR, "no ninja"),
    ]  # fmt: skip


def test_op_that_another_environment_built_is_a_warning(extensions: Path) -> None:
    (extensions / "fused_adam.so").touch()
    (extensions / "build.ninja").write_text("cflags = -isystem /other/site-packages/torch/include -O3\n")
    (_, finding) = check_build(settings_for(extensions), "no driver")
    assert finding.severity is Severity.WARN
    assert "/other/site-packages" in finding.message
    assert finding.mend.startswith("export TORCH_EXTENSIONS_DIR=")


def test_no_place_to_build_the_ops_is_an_error_with_its_mend(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    settings = Settings("orch.db", environ={"TORCH_EXTENSIONS_DIR": str(file / "ops")})
    found = [finding for finding in check_build(settings, "no driver") if "no place" in finding.message]
    assert [(finding.severity, finding.evidence.split()[0]) for finding in found] == [
        (Severity.ERROR, str(file))
    ]
    assert found[0].mend.startswith("export TORCH_EXTENSIONS_DIR=")


def test_no_compiler_is_an_error(extensions: Path) -> None:
    findings = check_build(settings_for(extensions, PATH="/nonexistent"), "no driver")
    assert any("no C++ compiler" in finding.message for finding in findings)
    assert worst(findings) is Severity.ERROR


@pytest.mark.parametrize(
    ("given", "mended"),
    [("9.0a", "9.0"), ("8.0;9.0a", "8.0;9.0"), ("10.0f+PTX", "10.0+PTX"), ("8.0 9.0a", "8.0 9.0")],
)
def test_arch_list_that_crashes_deepspeeds_builder_is_named_with_its_mend(
    extensions: Path, given: str, mended: str
) -> None:
    findings = check_build(settings_for(extensions, TORCH_CUDA_ARCH_LIST=given), "no driver")
    (finding,) = [finding for finding in findings if finding.check == "arch"]
    assert finding.mend == f'export TORCH_CUDA_ARCH_LIST="{mended}"'
    assert "crash" in finding.message


@pytest.mark.parametrize("given", ["9.0", "8.0;9.0+PTX", "", "Ampere"])
def test_arch_list_that_works_is_not_mentioned(extensions: Path, given: str) -> None:
    findings = check_build(settings_for(extensions, TORCH_CUDA_ARCH_LIST=given), "no driver")
    assert [finding for finding in findings if finding.check == "arch"] == []


def test_leftover_shared_memory_is_reported_and_removed_but_not_what_is_mapped(tmp_path: Path) -> None:
    dead, living, foreign = (
        tmp_path / name for name in ("deepspeed_allreduce_buffer_1_0", "deepspeed_living", "other")
    )
    for path in (dead, living, foreign):
        path.write_bytes(bytes(4096))
    settings = Settings("orch.db", shared_memory=tmp_path)
    with living.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    try:
        assert find_leftovers(settings) == [dead]
        (finding,) = check_leftovers(settings)
        assert finding.severity is Severity.WARN
        assert finding.message.startswith("1 shared-memory file of dead jobs: ")
        assert finding.mend == "orch doctor --fix leftovers"
        assert mend(Fix.LEFTOVERS, settings) == [f"removed {dead}"]
    finally:
        mapped.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deepspeed_living", "other"]
