"""Every check, in the order in which a reader wants the answers."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from orchestrator.doctor.database import check_database, database_folder
from orchestrator.doctor.devices import check_devices, read_driver
from orchestrator.doctor.finding import Finding, Settings, Severity, error
from orchestrator.doctor.host import check_disk, check_numa, check_ports
from orchestrator.doctor.jitlocks import clear_stale_locks
from orchestrator.doctor.link import probe_link
from orchestrator.doctor.memory import check_leftovers, check_memory, find_leftovers
from orchestrator.doctor.pinned import check_pinned
from orchestrator.doctor.software import check_build, check_locks, check_versions


class Fix(StrEnum):
    """What ``orch doctor --fix`` can mend by itself."""

    STALE_LOCK = "stale-lock"
    LEFTOVERS = "leftovers"


def examine(settings: Settings, *, probe: bool = False) -> list[Finding]:
    """Everything worth saying about this host. ``probe`` also measures the link: some seconds a device."""
    driver = read_driver()
    checks: list[tuple[str, Callable[[], list[Finding]]]] = [
        ("devices", lambda: check_devices(settings, driver)),
        ("link", lambda: probe_link(driver) if probe else []),
        ("versions", lambda: check_versions(driver)),
        ("build", lambda: check_build(settings, driver)),
        ("stale-lock", lambda: check_locks(settings)),
        ("memory", lambda: check_memory(settings, driver)),
        ("pinned", lambda: check_pinned(driver)),
        ("leftovers", lambda: check_leftovers(settings)),
        ("ports", check_ports),
        ("numa", lambda: check_numa(settings, driver)),
        ("disk", lambda: check_disk(database_folder(settings.db))),
        ("database", lambda: check_database(settings.db)),
    ]
    return [finding for name, check in checks for finding in _guarded(name, check)]


def mend(fix: Fix, settings: Settings) -> list[str]:
    """Mend one kind of finding; what was done, a line each."""
    if fix is Fix.STALE_LOCK:
        return [f"removed {lock.path}" for lock in clear_stale_locks(settings.environ)]
    removed = []
    for path in find_leftovers(settings):
        path.unlink(missing_ok=True)
        removed.append(f"removed {path}")
    return removed


def worst(findings: list[Finding]) -> Severity:
    """The worst severity among the findings."""
    order = list(Severity)
    return max((finding.severity for finding in findings), key=order.index, default=Severity.OK)


def _guarded(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """A check that stumbles is a finding; the others still run."""
    try:
        return check()
    except (OSError, ValueError, RuntimeError) as failure:
        return [error(name, f"the check itself failed: {failure}", type(failure).__name__)]
