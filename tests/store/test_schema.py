"""``schema.sql`` and SQLAlchemy's tables say the same, on both databases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import MetaData, Table, UniqueConstraint

from orchestrator.spec.axes import AXES
from orchestrator.store import Store
from orchestrator.store.tables import metadata

# SQLAlchemy reflects SQLite's DOUBLE PRECISION by its affinity alone.
_AFFINITY = {"REAL": "DOUBLE PRECISION"}


def _shape(table: Table, dialect: Any) -> dict[str, Any]:
    uniques = {
        tuple(column.name for column in constraint.columns)
        for constraint in table.constraints
        if isinstance(constraint, UniqueConstraint)
    }
    uniques |= {(column.name,) for column in table.columns if column.unique}
    return {
        "columns": [
            (c.name, _AFFINITY.get(kind := c.type.compile(dialect), kind), bool(c.nullable))
            for c in table.columns
        ],
        "key": [column.name for column in table.primary_key],
        "references": sorted((k.parent.name, k.target_fullname) for k in table.foreign_keys),
        "uniques": uniques,
    }


def test_tables_equal_the_schema_as_created(store: Store) -> None:
    reflected = MetaData()
    reflected.reflect(store.session.engine)
    dialect = store.session.engine.dialect
    assert reflected.tables.keys() == metadata.tables.keys()
    for name, table in metadata.tables.items():
        assert _shape(reflected.tables[name], dialect) == _shape(table, dialect), name


def test_best_setting_separates_every_axis(store: Store) -> None:
    columns, _ = store.sql("SELECT * FROM best_setting")
    assert {axis.name for axis in AXES} <= set(columns)


def test_views_answer_on_an_empty_database(store: Store) -> None:
    for view in ("job_summary", "best_setting", "example_table"):
        assert store.sql(f"SELECT * FROM {view}")[1] == []


def test_sqlite_declares_the_types_of_the_tables(sqlite_store: Store) -> None:
    for name, table in metadata.tables.items():
        _, rows = sqlite_store.sql(f"PRAGMA table_info({name})")
        declared = [(row[1], row[2]) for row in rows]
        assert declared == [(c.name, str(c.type)) for c in table.columns]
