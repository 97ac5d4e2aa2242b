"""The report's first lines: the best setting, and what a reader should know before believing a figure.

Everything here is derived from the sweep's own rows. A thing that does not show in them is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from orchestrator.analysis import findings
from orchestrator.analysis.jobs import MEASURING, SETTINGS, Job, JobSet, Value, setting_text


@dataclass(frozen=True, slots=True)
class Best:
    """The setting with the shortest offload + reload for one question in one environment."""

    setting: str
    environment_id: int | None
    jobs: int
    offload_s: float
    reload_s: float
    copied_bytes: float | None
    freed_bytes: float | None
    pinned_bytes: float | None
    ranks_a_node: int
    offload_link_share: float | None
    reload_link_share: float | None
    question: tuple[tuple[str, Value], ...]
    """The axes that make up the question, where the sweep varies them."""
    settings: int = 1
    """How many settings answered the question; of one alone nobody knows whether it is the best."""
    flagged_faster: tuple[str, ...] = ()
    """Cells that were faster still, but carry a flag: ``9ada2d (link drifted)``."""
    as_good: tuple[str, ...] = ()
    """Settings of which some job was no slower than the slowest of the best: they cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What the sweep says, best first; ``things`` are (kind, sentence)."""

    best: tuple[Best, ...]
    things: tuple[tuple[str, str], ...]

    @property
    def largest(self) -> tuple[Best, ...]:
        """In each environment the best setting for the largest copy for which settings were compared."""
        chosen: dict[int | None, Best] = {}
        for best in self.best:
            other = chosen.get(best.environment_id)
            if other is None or _weight(best) > _weight(other):
                chosen[best.environment_id] = best
        return tuple(chosen.values())


def _weight(best: Best) -> tuple[bool, float]:
    return best.settings > 1, best.copied_bytes or 0.0


def answer(jobs: JobSet) -> Answers:
    """The best settings over the valid jobs, and the things to know over all."""
    checks: Sequence[Callable[[JobSet], list[tuple[str, str]]]] = findings.CHECKS
    return Answers(best_settings(jobs), tuple(thing for check in checks for thing in check(jobs)))


def best_settings(jobs: JobSet) -> tuple[Best, ...]:
    """For each question and environment the best setting, as the view ``best_setting`` defines it."""
    # Valid, and the sweep file still asks for it.
    valid = [
        job
        for job in jobs.measured
        if job.is_valid and not job.flags() and job.number("reload_s_median") is not None
    ]
    flagged = [job for job in jobs.measured if job.flags()]
    asked = [name for name in jobs.varying(jobs.measured) if name not in _OF_A_CELL]
    questions, doubtful = _by_question(valid, asked), _by_question(flagged, asked)
    found = []
    for question, settings in questions.items():
        members = min(settings.values(), key=_asleep_and_awake)
        faster = [
            f"{others[0].cell6} ({', '.join(dict.fromkeys(flag for job in others for flag in job.flags()))})"
            for setting, others in doubtful.get(question, {}).items()
            if setting not in settings and _asleep_and_awake(others) < _asleep_and_awake(members)
        ]
        most = max(_cycle_s(job) for job in members)
        best = _best(members, question, asked)
        as_good = dict.fromkeys(
            setting_text(others[0])
            for others in settings.values()
            if setting_text(others[0]) != best.setting and min(_cycle_s(job) for job in others) <= most
        )
        count = len({setting_text(others[0]) for others in settings.values()})
        found.append(replace(best, settings=count, flagged_faster=tuple(faster), as_good=tuple(as_good)))
    return tuple(found)


_OF_A_CELL = (*SETTINGS, *MEASURING)
"""In what the cells of one question differ; a setting that was measured in two ways is two cells of it."""


def _by_question(
    members: Sequence[Job], asked: Sequence[str]
) -> dict[tuple[Value, ...], dict[tuple[Value, ...], list[Job]]]:
    """Jobs by environment and question, and then by cell."""
    questions: dict[tuple[Value, ...], dict[tuple[Value, ...], list[Job]]] = {}
    for job in members:
        question = (job.values.get("environment_id"), *(job.values.get(name) for name in asked))
        setting = tuple(job.values.get(name) for name in _OF_A_CELL)
        questions.setdefault(question, {}).setdefault(setting, []).append(job)
    return questions


def _asleep_and_awake(members: Sequence[Job]) -> float:
    return _median(members, "offload_s_median", 0.0) + _median(members, "reload_s_median", 0.0)


def _cycle_s(job: Job) -> float:
    return _asleep_and_awake([job])


def _median(members: Sequence[Job], column: str, missing: float) -> float:
    values = [value for job in members if (value := job.number(column)) is not None]
    return median(values) if values else missing


def _maybe(members: Sequence[Job], column: str) -> float | None:
    values = [value for job in members if (value := job.number(column)) is not None]
    return median(values) if values else None


def _best(members: Sequence[Job], question: tuple[Value, ...], asked: Sequence[str]) -> Best:
    environment = question[0]
    return Best(
        setting=setting_text(members[0]),
        environment_id=environment if isinstance(environment, int) else None,
        jobs=len(members),
        offload_s=_median(members, "offload_s_median", 0.0),
        reload_s=_median(members, "reload_s_median", 0.0),
        copied_bytes=_maybe(members, "copied_bytes"),
        freed_bytes=_maybe(members, "freed_bytes"),
        pinned_bytes=_maybe(members, "pinned_bytes"),
        ranks_a_node=int(members[0].number("num_gpus") or 1),
        offload_link_share=_maybe(members, "offload_link_share"),
        reload_link_share=_maybe(members, "reload_link_share"),
        question=tuple(zip(asked, question[1:], strict=True)),
    )
