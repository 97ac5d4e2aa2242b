"""Which engine runs the sweep? From the sweep file and the command line to an ``Engine``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from orchestrator.engines.base import Engine, SweepOptions
from orchestrator.errors import SpecError
from orchestrator.launch.probes import probe_command
from orchestrator.launch.setting import RunSetting
from orchestrator.spec.options import (
    ENGINE_SETTINGS,
    EngineName,
    EngineOptions,
    EngineSettings,
    LauncherName,
    LocalOptions,
    RayOptions,
    SlurmOptions,
)
from orchestrator.spec.plan import Plan
from orchestrator.store.url import resolve_url


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What the command line says about the engine; ``None`` leaves it to the sweep file.

    Attributes:
        gpus: indices or UUIDs of devices of this host.
        slots: ranks at once on this host.
        settings: ``KEY=VALUE`` of the engine's options in the sweep file.
    """

    engine: EngineName | None = None
    launcher: LauncherName | None = None
    gpus: tuple[str, ...] | None = None
    slots: int | None = None
    settings: tuple[str, ...] = ()


def choose(plan: Plan, choice: EngineChoice) -> Plan:
    """The plan with the command line's engine, options and launcher in place of the sweep file's.

    Raises:
        SpecError: an option is unknown, has the wrong type, or belongs to another engine.
    """
    engine = plan.engine
    if choice.engine is not None and choice.engine != engine.name:
        engine = EngineOptions(choice.engine, ENGINE_SETTINGS[choice.engine]())
    if engine.name != "local" and (choice.gpus is not None or choice.slots is not None):
        raise SpecError(
            f"--gpus and --slots are for the local engine; {engine.name} gives out its own devices"
        )
    engine = replace(engine, options=_with_settings(engine.options, choice.settings))
    if isinstance(engine.options, LocalOptions) and choice.slots is not None:
        engine = replace(engine, options=replace(engine.options, slots=choice.slots))
    launcher = replace(plan.launcher, name=choice.launcher) if choice.launcher else plan.launcher
    return replace(plan, engine=engine, launcher=launcher)


def _with_settings(options: EngineSettings, settings: Sequence[str]) -> EngineSettings:
    if not settings:
        return options
    from pydantic import TypeAdapter, ValidationError

    values: dict[str, object] = {field.name: getattr(options, field.name) for field in fields(options)}
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator or key not in values:
            raise SpecError(
                f"unknown engine option {setting!r}", "--engine-option", f"known: {', '.join(sorted(values))}"
            )
        values[key] = (*_items(values[key]), text) if isinstance(values[key], tuple) else text
    try:
        return TypeAdapter(type(options)).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(
            f"{first['loc'][0] if first['loc'] else ''}: {first['msg']}", "--engine-option"
        ) from error


def _items(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def setting_of(plan: Plan, db_url: str, options: SweepOptions | None = None) -> RunSetting:
    """What every engine is made from, out of the plan and what the user asked of this run."""
    limits, options = plan.limits, options or SweepOptions(probe_every_s=None)
    database = resolve_url(db_url)
    return RunSetting(
        # A rank works in its own directory: a relative name would be another file there.
        db_url=str(database.path or database.text),
        sweep=plan.name,
        launcher=plan.launcher.name,
        worker=plan.launcher.worker,
        timeout_s=limits.timeout_s,
        grace_s=limits.grace_s,
        start_timeout_s=limits.start_timeout_s,
        hang_s=limits.hang_s,
        retries=limits.retries,
        consecutive_failures=1 if options.fail_fast else limits.consecutive_failures,
        probe_every_s=options.probe_every_s,
        probe_command=probe_command(),
    )


def make_engine(
    plan: Plan, db_url: str, gpus: Sequence[str] | None = None, options: SweepOptions | None = None
) -> Engine:
    """The engine that the plan names, not yet open.

    Raises:
        EngineError: it cannot work here, e.g. no such device, no Slurm, Ray not installed.
    """
    setting, engine = setting_of(plan, db_url, options), plan.engine.options
    if isinstance(engine, SlurmOptions):
        if engine.mode == "pilot":
            from orchestrator.engines.slurm_pilots import SlurmPilots

            return SlurmPilots(setting, engine)
        from orchestrator.engines.slurm import SlurmEngine

        return SlurmEngine(setting, engine)
    if isinstance(engine, RayOptions):
        from orchestrator.engines.ray import RayEngine

        return RayEngine(setting, engine)
    from orchestrator.engines.local import LocalEngine

    if gpus is None and engine.gpus is not None:
        gpus = tuple(str(index) for index in engine.gpus)
    return LocalEngine(setting, gpus=gpus, slots=engine.slots, prestart=environments_of(plan))


def environments_of(plan: Plan) -> list[dict[str, str]]:
    """The distinct environments of the cells, most frequent first: a fork server may serve each."""
    counts: dict[tuple[tuple[str, str], ...], int] = {}
    for cell in plan.cells:
        key = tuple(sorted(cell.env.items()))
        counts[key] = counts.get(key, 0) + 1
    return [dict(key) for key in sorted(counts, key=lambda key: -counts[key])]


def hosts_of(name: EngineName) -> int:
    """How many hosts may write to the database: 2 stands for several."""
    return 1 if name == "local" else 2
