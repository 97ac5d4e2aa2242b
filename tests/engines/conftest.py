"""Fixtures of the engines' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.running import Workplace


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """A workplace with the local engine and two slots."""
    return Workplace(tmp_path)
