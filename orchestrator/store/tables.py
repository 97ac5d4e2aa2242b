"""SQLAlchemy's view of ``schema.sql``; a test holds both equal on SQLite and PostgreSQL.

``schema.sql`` creates databases; this is only how queries are written.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BIGINT,
    BOOLEAN,
    DOUBLE_PRECISION,
    INTEGER,
    TEXT,
    VARCHAR,
    Column,
    ForeignKey,
    MetaData,
    Table,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

from orchestrator.spec.axes import AXES, Axis, AxisType

metadata = MetaData()

_AXIS_TYPES: dict[AxisType, type[TypeEngine[Any]]] = {
    AxisType.BOOLEAN: BOOLEAN,
    AxisType.INTEGER: INTEGER,
    AxisType.NUMBER: DOUBLE_PRECISION,
    AxisType.STRING: TEXT,
    AxisType.STATES: TEXT,
}


def _axis(axis: Axis) -> Column[Any]:
    return Column(axis.name, BIGINT if axis.name.endswith("_bytes") else _AXIS_TYPES[axis.type])


def _needed(name: str, type_: type[TypeEngine[Any]], *rest: Any, **more: Any) -> Column[Any]:
    return Column(name, type_, *rest, nullable=False, **more)


def _key(name: str) -> Column[Any]:
    return Column(name, INTEGER, primary_key=True, autoincrement=False)


def _uid() -> Column[Any]:
    return Column("uid", TEXT, nullable=False, unique=True)


def _columns(type_: type[TypeEngine[Any]], names: str) -> list[Column[Any]]:
    return [Column(name, type_) for name in names.split()]


alembic_version = Table("alembic_version", metadata, Column("version_num", VARCHAR(32), primary_key=True))

counter = Table("counter", metadata, Column("name", TEXT, primary_key=True), _needed("next_id", BIGINT))

sweep = Table(
    "sweep",
    metadata,
    _key("sweep_id"),
    _uid(),
    _needed("name", TEXT, unique=True),
    _needed("spec", TEXT),
    *_columns(TEXT, "spec_path engine"),
    _needed("created_at", TEXT),
    _needed("updated_at", TEXT),
    _needed("cancel_requested", BOOLEAN),
    Column("owner", TEXT),
)

job = Table(
    "job",
    metadata,
    _key("job_id"),
    _uid(),
    _needed("sweep_id", INTEGER, ForeignKey("sweep.sweep_id")),
    _needed("cell", TEXT),
    _needed("repeat", INTEGER),
    _needed("position", INTEGER),
    _needed("status", TEXT),
    Column("reason", TEXT),
    _needed("in_spec", BOOLEAN),
    _needed("created_at", TEXT),
    _needed("updated_at", TEXT),
    *(_axis(axis) for axis in AXES),
    *_columns(TEXT, "ds env"),
    *_columns(
        BIGINT,
        "parameters_total predicted_gpu_bytes predicted_freed_bytes predicted_copied_bytes"
        " predicted_pinned_bytes",
    ),
    UniqueConstraint("sweep_id", "cell", "repeat"),
)

environment = Table(
    "environment",
    metadata,
    _key("environment_id"),
    _uid(),
    _needed("host", TEXT),
    *_columns(TEXT, "kernel os python torch cuda nccl deepspeed orch driver accelerator gpu_name"),
    Column("gpu_count", INTEGER),
    Column("gpu_bytes", BIGINT),
    *_columns(INTEGER, "pcie_generation pcie_width"),
    Column("cpu_name", TEXT),
    Column("cpu_count", INTEGER),
    Column("ram_bytes", BIGINT),
    Column("numa_nodes", INTEGER),
    *_columns(TEXT, "variables packages"),
    _needed("created_at", TEXT),
)

attempt = Table(
    "attempt",
    metadata,
    _key("attempt_id"),
    _uid(),
    _needed("job_id", INTEGER, ForeignKey("job.job_id")),
    _needed("number", INTEGER),
    _needed("status", TEXT),
    *_columns(TEXT, "failure_kind message"),
    _needed("engine", TEXT),
    Column("engine_job", TEXT),
    _needed("launcher", TEXT),
    *_columns(TEXT, "launch_mode launch_note host hosts device_uuids"),
    Column("port", INTEGER),
    _needed("run_dir", TEXT),
    Column("environment_id", INTEGER, ForeignKey("environment.environment_id")),
    *_columns(TEXT, "ds_config ds_config_sha256 alloc_conf"),
    Column("tracked_objects", INTEGER),
    Column("numa_bound", TEXT),
    _needed("created_at", TEXT),
    *_columns(TEXT, "started_at timed_from_at timed_to_at ended_at"),
    *_columns(DOUBLE_PRECISION, "wait_s wall_s loop_s"),
    *_columns(INTEGER, "exit_status signal"),
    Column("overlapped", BOOLEAN),
    Column("overlap_note", TEXT),
    Column("heartbeat", DOUBLE_PRECISION),
    Column("owner", TEXT),
    UniqueConstraint("job_id", "number"),
)


def _attempt_key() -> Column[Any]:
    return Column(
        "attempt_id", INTEGER, ForeignKey("attempt.attempt_id"), primary_key=True, autoincrement=False
    )


attempt_rank = Table(
    "attempt_rank",
    metadata,
    _attempt_key(),
    _key("rank"),
    Column("host", TEXT),
    Column("pid", INTEGER),
    *_columns(TEXT, "device_uuid launch_mode"),
    Column("environment_id", INTEGER, ForeignKey("environment.environment_id")),
    *_columns(TEXT, "started_at timed_from_at timed_to_at"),
    Column("loop_s", DOUBLE_PRECISION),
    Column("iterations", INTEGER),
    *_columns(TEXT, "final_at error_status failure_kind message traceback"),
)

iteration = Table(
    "iteration",
    metadata,
    _attempt_key(),
    _key("rank"),
    _key("iteration"),
    _needed("is_warmup", BOOLEAN),
    _needed("is_cold", BOOLEAN),
    _needed("is_instrumented", BOOLEAN),
    *_columns(
        DOUBLE_PRECISION,
        "started_s step_s offload_s offload_host_s offload_all_s reload_s reload_host_s reload_all_s",
    ),
    *_columns(BIGINT, "freed_bytes predicted_freed_bytes copied_bytes device_freed_bytes"),
    *_columns(BOOLEAN, "bytes_match states_intact devices_ok"),
    *_columns(
        BIGINT,
        "allocated_before_bytes allocated_offloaded_bytes allocated_after_bytes reserved_before_bytes"
        " reserved_offloaded_bytes reserved_after_bytes peak_step_bytes peak_offload_bytes"
        " peak_reload_bytes pinned_bytes",
    ),
    Column("pinning_s", DOUBLE_PRECISION),
    Column("rss_bytes", BIGINT),
    Column("loss", DOUBLE_PRECISION),
    Column("skipped_step", BOOLEAN),
    Column("nonfinite", TEXT),
    *_columns(
        DOUBLE_PRECISION,
        "offload_copy_s offload_gc_s offload_empty_cache_s offload_alloc_s offload_wait_s"
        " reload_copy_s reload_gc_s reload_empty_cache_s reload_alloc_s reload_wait_s",
    ),
    Column("state_split", TEXT),
)

memory_sample = Table(
    "memory_sample",
    metadata,
    _attempt_key(),
    _key("rank"),
    _key("sample"),
    Column("iteration", INTEGER),
    _needed("phase", TEXT),
    _needed("at_s", DOUBLE_PRECISION),
    *_columns(
        BIGINT,
        "allocated_bytes reserved_bytes device_used_bytes device_free_bytes pinned_bytes rss_bytes"
        " cgroup_bytes",
    ),
)

link_probe = Table(
    "link_probe",
    metadata,
    _key("probe_id"),
    _uid(),
    Column("sweep_id", INTEGER, ForeignKey("sweep.sweep_id")),
    _needed("host", TEXT),
    _needed("device_uuid", TEXT),
    Column("device_name", TEXT),
    _needed("pinned", BOOLEAN),
    _needed("direction", TEXT),
    _needed("bytes", BIGINT),
    _needed("copies", INTEGER),
    _needed("seconds", DOUBLE_PRECISION),
    _needed("gbps", DOUBLE_PRECISION),
    _needed("devices_at_once", INTEGER),
    _needed("probed_at", TEXT),
)

event = Table(
    "event",
    metadata,
    _key("event_id"),
    _needed("at", TEXT),
    *_columns(INTEGER, "sweep_id job_id attempt_id"),
    _needed("kind", TEXT),
    *_columns(TEXT, "from_status to_status message"),
)

job_result = Table(
    "job_result",
    metadata,
    Column("job_id", INTEGER, ForeignKey("job.job_id"), primary_key=True, autoincrement=False),
    _needed("attempt_id", INTEGER, ForeignKey("attempt.attempt_id")),
    _needed("ranks", INTEGER),
    _needed("warm_iterations", INTEGER),
    *_columns(
        DOUBLE_PRECISION,
        "step_s_median offload_s_median offload_s_p95 offload_s_min offload_s_max offload_host_s_median"
        " offload_all_s_median offload_cold_s",
    ),
    Column("offload_slowest_rank", INTEGER),
    *_columns(
        DOUBLE_PRECISION,
        "reload_s_median reload_s_p95 reload_s_min reload_s_max reload_host_s_median"
        " reload_all_s_median reload_cold_s",
    ),
    Column("reload_slowest_rank", INTEGER),
    Column("cold_pinning_s", DOUBLE_PRECISION),
    *_columns(
        BIGINT,
        "copied_bytes freed_bytes predicted_freed_bytes device_freed_bytes pinned_bytes peak_reload_bytes",
    ),
    *_columns(
        DOUBLE_PRECISION,
        "offload_gbps reload_gbps link_down_gbps link_up_gbps offload_link_share reload_link_share"
        " probe_drift_share offload_drift_s leak_bytes",
    ),
    *_columns(BOOLEAN, "states_intact devices_ok bytes_match overlapped"),
    Column("skipped_steps", INTEGER),
    _needed("is_valid", BOOLEAN),
)
