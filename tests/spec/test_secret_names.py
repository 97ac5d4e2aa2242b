"""Secrets under ``env``: told by their names, warned about, and never repeated."""

from __future__ import annotations

import pytest

from tests.spec.reading import plan


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("HF_TOKEN", True),
        ("aws_secretkey", True),
        ("DB_PASSPHRASE", True),
        ("MYSQL_PWD", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("PWD", False),
        ("NCCL_BYPASS", False),
    ],
)
def test_secret_in_env_is_warned_about_by_its_name_alone(name: str, is_secret: bool) -> None:
    made = plan(
        f"""
        env: {{{name}: abc}}
        """
    )
    warned = [line for line in made.warnings if f"env.{name} looks like a secret" in line]
    assert len(warned) == is_secret
    assert "abc" not in "".join(made.warnings)


def test_secret_axis_is_warned_about_once() -> None:
    made = plan(
        """
        matrix: {env.HF_TOKEN: [a, b]}
        """
    )
    assert [line.partition(": ")[0] for line in made.warnings] == ["sweep.yaml:2:25"]
