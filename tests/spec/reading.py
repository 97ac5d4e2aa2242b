"""Helpers of these tests: a plan from text, and the error that a text gives."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import parse_plan
from orchestrator.spec.plan import Plan


def plan(text: str, **options: Any) -> Plan:
    """The plan of an indented text; a name is put before it if it has none."""
    text = textwrap.dedent(text).lstrip("\n")
    if not re.search(r"^\W*name:", text, re.MULTILINE):
        text = f"name: test\n{text}"
    return parse_plan(text, where="sweep.yaml", **options)


def error(text: str, **options: Any) -> str:
    """The message that a text is refused with."""
    with pytest.raises(SpecError) as caught:
        plan(text, **options)
    assert caught.value.exit_status == 2
    return caught.value.render()


def column(made: Plan, axis: str) -> list[Any]:
    """One axis of every cell, in the plan's order."""
    return [cell.parameters().get(axis) for cell in made.cells]
