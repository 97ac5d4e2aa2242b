"""A real Ray on this host: a head and further nodes, each a raylet with two processors of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

CPUS_PER_NODE = 2
ROOT = Path(__file__).resolve().parents[2]


class RayCluster:
    """Starts and stops the nodes; a context.

    Args:
        gpus: how many the head says it has.
        modules: a folder of modules that go before the installed ones.
    """

    def __init__(self, gpus: int = 0, modules: Path | None = None) -> None:
        self.state_dir = tempfile.mkdtemp(prefix="orch-r-", dir="/tmp")
        self._before = dict(os.environ)
        os.environ.update(
            RAY_USAGE_STATS_ENABLED="0",
            RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
            ORCH_STATE_DIR=self.state_dir,
            DS_ACCELERATOR="cuda" if gpus else "cpu",
            PYTHONPATH=os.pathsep.join(map(str, filter(None, (modules, ROOT)))),
        )
        from ray.cluster_utils import Cluster

        arguments = {
            "num_cpus": CPUS_PER_NODE,
            "num_gpus": gpus,
            "include_dashboard": False,
            "object_store_memory": 80 << 20,
        }
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=arguments)

    @property
    def address(self) -> str:
        """What a driver connects to."""
        return str(self._cluster.address)

    def add_node(self) -> Any:
        """One more node."""
        return self._cluster.add_node(num_cpus=CPUS_PER_NODE, object_store_memory=80 << 20)

    def kill_node(self, node: Any) -> None:
        """Takes a node away as a crash does."""
        self._cluster.remove_node(node, allow_graceful=False)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()
        for name in ("ORCH_STATE_DIR", "DS_ACCELERATOR", "PYTHONPATH"):
            os.environ.pop(name, None)
            if name in self._before:
                os.environ[name] = self._before[name]
        shutil.rmtree(self.state_dir, ignore_errors=True)
