"""The Slurm engine keeps the contract of all engines, on a real Slurm."""

from __future__ import annotations

import pytest

from tests.cluster.places import ClusterPlace
from tests.engines.contract import EngineContract

pytestmark = [pytest.mark.slurm, pytest.mark.postgres]


@pytest.fixture
def place(slurm_place: ClusterPlace) -> ClusterPlace:
    """Where the contract's sweeps run."""
    return slurm_place


class TestSlurm(EngineContract):
    """``--engine slurm``: a Slurm job for each attempt."""

    max_at_once = 6
