"""The local engine keeps the contract of all engines."""

from __future__ import annotations

from tests.engines.contract import EngineContract


class TestLocal(EngineContract):
    """``--engine local --slots 2``."""
