"""A sweep whose disk is full: on a file system of 16 MB, in a mount namespace of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engines import acting_worker as act
from tests.engines.kill_rounds import acknowledged_iterations
from tests.engines.running import Workplace

JOBS = 30
FULL = ("the disk is full", "No space left on device", "it cannot be written")


def _can_mount() -> bool:
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not _can_mount(), reason="this user cannot mount a file system")

FILL = """
mkdir -p "$DISK"
mount -t tmpfs -o size=3m none "$DISK"
cp spec.yaml "$DISK"
cd "$WORK"
fill() { cat /dev/zero > "$DISK/ballast" 2> /dev/null; }
begun() { grep -qs iteration orch.db.runs/*/*/spool/rank0.jsonl; }
[ "$WHEN" = late ] || fill
($SWEEP 2> $TOLD/first.err; echo $? > $TOLD/first.status) &
until [ "$WHEN" = early ] || [ -e $TOLD/first.status ] || begun; do sleep 0.05; done
[ "$WHEN" = early ] || fill
until [ -e $TOLD/first.status ] || grep -q 'no space left in\\|is full' $TOLD/first.err; do sleep 0.05; done
rm "$DISK/ballast"
wait
[ "$WORK" = "$TOLD" ] || cp -r orch.db* $TOLD
"""

SCRIPT = """
mount -t tmpfs -o size=16m none "$DISK"
cp spec.yaml "$DISK"
cd "$DISK"
head -c $((16384 * 1024 - $LEFT * 1024)) /dev/zero > ballast
($SWEEP 2> $TOLD/first.err; echo $? > $TOLD/first.status) &
until [ -e $TOLD/first.status ] || grep -q 'is full\\|No space\\|cannot be written' $TOLD/first.err; do
    sleep 0.05
done
rm ballast
wait
$SWEEP 2> $TOLD/second.err; echo $? > $TOLD/second.status
cp -r orch.db* $TOLD
"""


@pytest.mark.parametrize("left_kb", [8, 500, 900, 1300])
def test_full_disk_is_told_loses_nothing_and_the_sweep_continues(place: Workplace, left_kb: int) -> None:
    """8 KB do not hold even a database; the others fill up on the way. Space comes back once it is told."""
    spec = place.spec(JOBS, iterations=40, micro_batch=act.PRINTS_MUCH, limits="retries: 0")
    spec.rename(place.folder / "spec.yaml")
    _run_on_a_small_disk(place, SCRIPT, LEFT=str(left_kb))
    first, second = (_Run(place.folder, name) for name in ("first", "second"))
    assert "Traceback" not in first.errors + second.errors
    told = [line for line in first.errors.splitlines() if line.startswith("orch: ")]
    assert len(told) == (first.status == 3), first.errors
    if left_kb == 8:
        assert first.status == 3
    assert any(words in first.errors for words in FULL)
    # A job that was lost for want of space runs again without being asked for; what was recorded does not.
    again = place.sweep(place.folder / "spec.yaml")
    assert again.returncode == 0, again.stderr
    assert place.statuses() == {"ok": JOBS}
    stored = place.query(
        "select a.uid, i.rank, i.iteration from iteration i join attempt a using (attempt_id)"
    )
    kept = {(row["uid"], row["rank"], row["iteration"]) for row in stored}
    assert acknowledged_iterations(Path(f"{place.db}.runs")) - kept == set()
    place.wait_for_no_survivors()


@pytest.mark.parametrize(("when", "holds_database"), [("late", True), ("late", False), ("early", False)])
def test_disk_that_is_full_when_jobs_run_or_start_costs_attempts_and_no_job(
    place: Workplace, when: str, holds_database: bool
) -> None:
    """3 MB for the run directories, and for the database or not; full until the sweep has told so."""
    spec = place.spec(4, iterations=150, dwell_s=0.02, limits="retries: 0")
    spec.rename(place.folder / "spec.yaml")
    if holds_database:
        _run_on_a_small_disk(place, FILL, WHEN=when, WORK=str(place.folder / "disk"))
    else:
        runs = str(place.folder / "orch.db.runs")
        _run_on_a_small_disk(place, FILL, WHEN=when, WORK=str(place.folder), DISK=runs)
    first = _Run(place.folder, "first")
    assert first.status == 0, first.errors
    assert "Traceback" not in first.errors
    assert holds_database or "is free there" in first.errors
    assert holds_database or "there is space in" in first.errors
    assert place.statuses() == {"ok": 4}
    ended = place.query("select status, message from attempt where status <> 'ok'")
    assert ended
    assert {row["status"] for row in ended} == {"lost"}
    assert all("No space left on device" in row["message"] for row in ended)
    # None was begun only to be lost for the same reason.
    assert len(ended) <= 2
    place.wait_for_no_survivors()


def _run_on_a_small_disk(place: Workplace, script: str, **variables: str) -> None:
    (place.folder / "disk").mkdir()
    environment = place.environment | {
        "DISK": str(place.folder / "disk"),
        "TOLD": str(place.folder),
        "ORCH_DB": "orch.db",
        "SWEEP": " ".join([*place.command("sweep", "spec.yaml"), *place.options, "--quiet"]),
        **variables,
    }
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script]
    subprocess.run(command, cwd=place.folder, env=environment, check=True, timeout=200)


class _Run:
    """What one of the two sweeps left."""

    def __init__(self, folder: Path, name: str) -> None:
        self.status = int((folder / f"{name}.status").read_text())
        self.errors = (folder / f"{name}.err").read_text()
