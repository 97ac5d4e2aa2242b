"""A workplace on a cluster: the database is a PostgreSQL server's, asked directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import dict_row

from tests.engines.running import Workplace


class ClusterPlace(Workplace):
    """As ``Workplace``; ``query`` does not start an ``orch`` for each question."""

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows of the database; none while there are no tables."""
        if "://" not in self.db:
            return super().query(sql)
        with psycopg.connect(self.db, row_factory=dict_row, autocommit=True) as connection:
            try:
                return connection.execute(sql).fetchall()
            except psycopg.errors.UndefinedTable:
                return []


class RayPlace(ClusterPlace):
    """As ``ClusterPlace``; Ray's own daemons are no survivors, orch's processes on the nodes are."""

    nodes_state_dir = ""

    def survivors(self) -> list[int]:
        """Also supervisors and fork servers that Ray workers have started."""
        mark = f"ORCH_STATE_DIR={self.nodes_state_dir}".encode()
        found = super().survivors()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            ours = any(
                name in command for name in (b"orchestrator.launch", b"worker.server", b"worker.guarded")
            )
            if ours and mark in environ.split(b"\0"):
                found.append(int(entry.name))
        return found

    def ray_worker(self) -> int:
        """The Ray worker that runs a node: the parent of the supervisor of the rank that works here."""
        for pid in self.survivors():
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"orchestrator.launch.supervisor" in command:
                return psutil.Process(pid).ppid()
        raise AssertionError("no supervisor on the nodes")
