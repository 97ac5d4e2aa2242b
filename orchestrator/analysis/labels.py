"""How is a cell named to a reader who knows the sweep: by the axes that tell it from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.spec.axes import AXES
from orchestrator.spec.presets import states_label

if TYPE_CHECKING:
    from pandas import DataFrame


def cell_labels(jobs: DataFrame, cells: Sequence[str]) -> dict[str, str]:
    """Cell -> ``axis=value …`` over the axes that vary among the cells; empty if none does."""
    import pandas as pd

    first = jobs.drop_duplicates("cell").set_index("cell").loc[list(cells)]
    names = [axis.name for axis in AXES] + ["ds", "env"]
    varying = [name for name in names if name in first and first[name].nunique(dropna=False) > 1]
    return {
        str(cell): " ".join(f"{name}={axis_text(row[name])}" for name in varying if not pd.isna(row[name]))
        for cell, row in first.iterrows()
    }


_FEW_AXES = 3
"""So many axes are said of every cell; of more, only what is otherwise than in most cells."""


def short_labels(jobs: DataFrame, cells: Sequence[str]) -> tuple[dict[str, str], str]:
    """As ``cell_labels`` for people: state sets by their names, what most cells share once.

    The second value is what they share; empty if few axes vary.
    """
    first = jobs.drop_duplicates("cell").set_index("cell").loc[list(cells)]
    names = [name for name in [axis.name for axis in AXES] + ["ds", "env"] if name in first]
    told = {name: [_said(name, value) for value in first[name]] for name in names}
    varying = {name: texts for name, texts in told.items() if len(set(texts)) > 1}
    usual: dict[str, str] = {}
    for name, texts in varying.items() if len(varying) > _FEW_AXES else ():
        text, count = Counter(texts).most_common(1)[0]
        if count * 2 > len(texts):
            usual[name] = text
    labels = {
        str(cell): " ".join(
            text for name, texts in varying.items() if (text := texts[row]) and text != usual.get(name)
        )
        or "as usual" * bool(usual)
        for row, cell in enumerate(first.index)
    }
    return labels, " ".join(text for text in usual.values() if text)


def _said(name: str, value: object) -> str:
    """``axis=value``; empty for an inactive one."""
    import pandas as pd

    if pd.isna(value):  # type: ignore[call-overload]
        return ""
    return f"{name}={states_label(str(value)) if name == 'included_state' else axis_text(value)}"


def axis_text(value: object) -> str:
    """An axis value as one writes it in a sweep file."""
    import numpy as np

    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
