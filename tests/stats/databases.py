"""Small results databases for these tests, made from schema.sql and plain rows."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.spec.axes import AXES
from orchestrator.spec.bytes import predict
from orchestrator.spec.cell import make_cell

SCHEMA = Path(__file__).parents[2] / "schema.sql"
NOW = "2026-11-30T12:00:00Z"
H200 = {
    "host": "gpu1", "torch": "2.11.0", "deepspeed": "0.19.8", "driver": "580.159", "accelerator": "cuda",
    "gpu_name": "NVIDIA H200", "gpu_count": 2, "gpu_bytes": 150_754_820_096, "ram_bytes": 256 * 10**9,
    "variables": json.dumps({"OMP_NUM_THREADS": "1"}), "packages": "{}",
}  # fmt: skip


class Database:
    """A SQLite file with the real schema, filled row by row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.executescript(SCHEMA.read_text())
        self._ids = dict.fromkeys(("sweep", "job", "attempt", "environment", "link_probe", "event"), 0)

    def close(self) -> None:
        """Write everything; the counters then agree with the rows."""
        for name, last in self._ids.items():
            self._connection.execute("UPDATE counter SET next_id = ? WHERE name = ?", (last + 1, name))
        self._connection.commit()
        self._connection.close()

    def sweep(self, name: str) -> int:
        """A sweep; its id."""
        return self._insert(
            "sweep", uid=f"uid-{name}", name=name, spec=f"name: {name}\n", engine="local", created_at=NOW,
            updated_at=NOW, cancel_requested=False,
        )  # fmt: skip

    def environment(self, **changed: object) -> int:
        """A stack like ``H200`` but for what is changed; its id."""
        columns = H200 | changed
        uid = hashlib.sha256(json.dumps(columns, sort_keys=True).encode()).hexdigest()
        return self._insert("environment", uid=uid, created_at=NOW, **columns)

    def job(
        self,
        sweep_id: int,
        environment_id: int,
        axes: Mapping[str, object],
        repeat: int,
        result: Mapping[str, object],
        *,
        attempt: Mapping[str, object] | None = None,
    ) -> int:
        """An ok job with its attempt and result; its id."""
        cell = make_cell(axes)  # type: ignore[arg-type]
        bytes_ = predict(cell)
        job_id = self._insert(
            "job", uid=f"{sweep_id}-{cell.key}-{repeat}", sweep_id=sweep_id, cell=cell.key, repeat=repeat,
            position=self._ids["job"] + 1, status="ok", in_spec=True, created_at=NOW, updated_at=NOW,
            **{axis.name: cell.values[axis.name] for axis in AXES},
            ds=None, env=None, parameters_total=bytes_.parameters_total,
            predicted_gpu_bytes=bytes_.gpu_bytes, predicted_freed_bytes=bytes_.freed_bytes,
            predicted_copied_bytes=bytes_.copied_bytes, predicted_pinned_bytes=bytes_.pinned_bytes,
        )  # fmt: skip
        attempt_id = self._insert(
            "attempt", uid=f"attempt-{job_id}", job_id=job_id, number=1, status="ok", engine="local",
            launcher="fork", launch_mode="fork", host="gpu1", run_dir=f"/runs/{job_id}", created_at=NOW,
            environment_id=environment_id, **{"wall_s": 9.0, "loop_s": 6.0, **(attempt or {})},
        )  # fmt: skip
        row: dict[str, object] = {
            "job_id": job_id, "attempt_id": attempt_id, "ranks": cell.ranks, "warm_iterations": 5,
            "copied_bytes": bytes_.copied_bytes, "freed_bytes": bytes_.freed_bytes,
            "pinned_bytes": bytes_.pinned_bytes, "is_valid": True, **result,
        }  # fmt: skip
        self._insert_row("job_result", row)
        return job_id

    def jobs(
        self, sweep_id: int, environment_id: int, axes: Mapping[str, object],
        results: Iterable[Mapping[str, object]],
    ) -> None:  # fmt: skip
        """Repeats 1, 2, ... of one cell."""
        for repeat, result in enumerate(results, start=1):
            self.job(sweep_id, environment_id, axes, repeat, result)

    def set_status(self, sweep_id: int, axes: Mapping[str, object], repeat: int, status: str) -> None:
        """How one job ended, after all; its figures count no longer."""
        cell = make_cell(axes).key  # type: ignore[arg-type]
        of_job = "sweep_id = ? AND cell = ? AND repeat = ?"
        self._connection.execute(
            "UPDATE job_result SET is_valid = FALSE WHERE job_id IN (SELECT job_id FROM job"
            f" WHERE {of_job})", (sweep_id, cell, repeat),
        )  # fmt: skip
        self._connection.execute(
            f"UPDATE job SET status = ? WHERE {of_job}", (status, sweep_id, cell, repeat)
        )

    def _insert(self, table: str, **columns: object) -> int:
        self._ids[table] += 1
        self._insert_row(table, {f"{table}_id": self._ids[table], **columns})
        return self._ids[table]

    def _insert_row(self, table: str, columns: Mapping[str, object]) -> None:
        marks = ", ".join("?" * len(columns))
        self._connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values())
        )
