"""The Ray engine keeps the contract of all engines, on a real cluster of two nodes."""

from __future__ import annotations

import pytest

from tests.cluster.places import ClusterPlace
from tests.engines.contract import EngineContract

pytestmark = [pytest.mark.ray, pytest.mark.postgres]


@pytest.fixture
def place(ray_place: ClusterPlace) -> ClusterPlace:
    """Where the contract's sweeps run."""
    return ray_place


class TestRay(EngineContract):
    """``--engine ray``: a placement group for each attempt."""

    max_at_once = 4
