"""How is a cell named to a reader who knows the sweep: by the axes that tell it from the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.spec.axes import AXES

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


def axis_text(value: object) -> str:
    """An axis value as one writes it in a sweep file."""
    import numpy as np

    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
