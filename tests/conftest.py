"""What every test has: an environment without the developer's own settings, and honest skips."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.postgres import PostgresServer, private_server, server_programs


def _has_gpu() -> bool:
    from orchestrator.launch.devices import all_devices

    return bool(all_devices())


def _has_postgres() -> bool:
    return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "deepspeed": (lambda: find_spec("deepspeed") is not None, "deepspeed is not installed"),
    "gpu": (_has_gpu, "no NVIDIA GPU"),
    "ray": (lambda: find_spec("ray") is not None, "ray is not installed"),
    "slurm": (lambda: shutil.which("slurmctld", path=_SBIN) is not None, "no slurmctld"),
    "postgres": (_has_postgres, "no PostgreSQL server"),
    "browser": (lambda: any(map(shutil.which, ("chromium", "google-chrome"))), "no Chromium"),
}
_SBIN = "/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/usr/local/bin"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this host cannot run."""
    reasons: dict[str, str | None] = {}
    for item in items:
        for name in NEEDS.keys() & {mark.name for mark in item.iter_markers()}:
            if name not in reasons:
                is_there, reason = NEEDS[name]
                reasons[name] = None if is_there() else reason
            reason_found = reasons[name]
            if reason_found is not None:
                item.add_marker(pytest.mark.skip(reason=reason_found))


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's database, colours and DeepSpeed settings do not reach a test."""
    for name in (
        "ORCH_DB",
        "NO_COLOR",
        "FORCE_COLOR",
        "COLUMNS",
        "PAGER",
        "LOCAL_SIZE",
        "RANK",
        "WORLD_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    programs = server_programs()
    assert programs is not None
    with private_server(programs) as server:
        yield server
