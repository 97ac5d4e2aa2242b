"""Each case of CASES.md has a test that carries its id, and the tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (TESTS / "CASES.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| [A-D]\d+ \|", line)
]
IDS = (
    "A1 A2 A4 A5 A7 A8 A9 A10 A11 A13 A16 B1 B2 B3 B4 B5 B7 B8 B9 B10 B12 B13 B16 B18"
    " C1 C2 C4 C5 C6 C7 C8 C9 C10 D1 D2 D3 D5 D6"
).split()


def written_tests() -> dict[str, set[str]]:
    """Names of the test functions in each test file, by its path below tests/."""
    return {
        path.relative_to(TESTS).as_posix(): set(
            re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        )
        for path in TESTS.rglob("*.py")
    }


WRITTEN = written_tests()


def test_list_of_cases_is_complete_and_in_order() -> None:
    assert [row[0] for row in ROWS] == IDS


@pytest.mark.parametrize("case", IDS)
def test_case_has_a_test_named_by_its_id(case: str) -> None:
    prefix = f"test_{case.lower()}_"
    assert [name for names in WRITTEN.values() for name in names if name.startswith(prefix)]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_named_tests_exist(row: list[str]) -> None:
    for path, name in re.findall(r"`([\w/.]+\.py)::(test_\w+)`", row[-1]):
        assert name in WRITTEN[path]
