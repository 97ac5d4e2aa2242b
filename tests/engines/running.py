"""Start the real ``orch`` on a sweep and look at what it leaves."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORKER = "tests.engines.acting_worker:main"


def wait_until(condition: Callable[[], Any], what: str, within_s: float = 120.0) -> Any:
    """The condition's first true value; fails the test if there is none in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {within_s} s: {what}")


@dataclass
class Workplace:
    """A folder with a database, a host state of its own, and the sweeps run in it.

    Attributes:
        options: of every ``orch sweep``, e.g. the engine's.
        db: file or URL of the database.
    """

    folder: Path
    options: list[str] = field(default_factory=lambda: ["--engine", "local", "--slots", "2"])
    db: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.db = self.db or str(self.folder / "orch.db")
        state = self.folder / "state"
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ORCH_STATE_DIR": str(state),
            "ORCH_DB": self.db,
            "DS_ACCELERATOR": "cpu",
            **self.environment,
        }

    def spec(
        self, jobs: int = 1, *, name: str = "s", iterations: int = 1, limits: str = "", **axes: object
    ) -> Path:
        """A sweep of the acting worker: ``jobs`` repeats of each cell; a list value is an axis."""
        values: dict[str, object] = {"iteration": iterations, "warmup": 0, **axes}
        defaults = {key: value for key, value in values.items() if not isinstance(value, list)}
        matrix = {key: value for key, value in values.items() if isinstance(value, list)}
        path = self.folder / f"{name}.yaml"
        path.write_text(
            f"name: {name}\nrepeats: {jobs}\ndefaults: {json.dumps(defaults)}\nmatrix: {json.dumps(matrix)}\n"
            f"limits: {{grace_s: 1, {limits}}}\nlauncher: {{name: fork, worker: '{WORKER}'}}\n"
        )
        return path

    def command(self, *arguments: object) -> list[str]:
        """``orch`` with these arguments."""
        return [sys.executable, "-m", "orchestrator", *map(str, arguments)]

    def orch(self, *arguments: object, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run ``orch`` to its end."""
        return subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment, capture_output=True,
            text=True, timeout=timeout_s,
        )  # fmt: skip

    def sweep(
        self, spec: Path, *arguments: object, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a sweep to its end."""
        return self.orch("sweep", spec, *self.options, *arguments, timeout_s=timeout_s)

    @contextmanager
    def sweeping(self, spec: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """A sweep that runs while the block does; killed at its end if need be."""
        process = subprocess.Popen(
            self.command("sweep", spec, *self.options, *arguments), cwd=self.folder, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows of the database; none while there is no database."""
        if "://" in self.db:
            return json.loads(self.orch("sql", sql, "--json").stdout)
        if not Path(self.db).exists():
            return []
        with closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            try:
                return [dict(row) for row in connection.execute(sql)]
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise

    def statuses(self) -> dict[str, int]:
        """Jobs by status."""
        rows = self.query("select status, count(*) as n from job group by status")
        return {row["status"]: row["n"] for row in rows}

    def survivors(self) -> list[int]:
        """Processes that work inside this folder or were started for it, orch's own children included."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                cwd = str((entry / "cwd").readlink())
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            ours = f"ORCH_STATE_DIR={self.environment['ORCH_STATE_DIR']}".encode() in environ.split(b"\0")
            if ours or cwd == str(self.folder) or cwd.startswith(f"{self.folder}/"):
                found.append(int(entry.name))
        return found

    def wait_for_no_survivors(self) -> None:
        """Fails the test if a process of ours stays."""
        wait_until(lambda: not self.survivors(), f"survivors: {self.survivors()}", 30)
