"""Which cell is asked about: from axes, a named model, or a bare number of parameters."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis.measured import CHOICES
from orchestrator.analysis.predict import Question
from orchestrator.errors import SpecError
from orchestrator.spec.cell import Cell
from orchestrator.spec.load import parse_plan
from orchestrator.spec.models import ModelShape, Parameter, grouped
from orchestrator.spec.presets import ALL, states_label

_LAYER_NUMEL = 200_000_000
"""Elements of a layer of the stand-in: about those of a 7-billion-parameter model."""


def make_question(
    settings: Sequence[str], *, parameters: float | None = None, host: str | None = None
) -> Question:
    """The question that ``axis=value`` texts and a number of parameters ask.

    Raises:
        SpecError: an axis or value is wrong, is a list, or contradicts the number of parameters.
    """
    plan = parse_plan("name: predict\n", where="--set", overrides=settings)
    if len(plan.cells) != 1:
        raise SpecError("a prediction is for one value of each axis", "--set", "give one value, not a list")
    cell = plan.cells[0]
    names = {text.partition("=")[0].strip() for text in settings}
    shape = None
    if parameters is not None:
        sized = names & {"model", "nlayers", "hidden_dim", "ffn_dim", "vocab_size", "num_heads"}
        if sized:
            both = f"--params and {', '.join(sorted(sized))} both give the size"
            raise SpecError(both, "--params", "use one")
        shape = stand_in(parameters, int(cell.effective("param_groups") or 1))
    return Question(
        cell, _subject(cell, shape), shape, is_setting_given=bool(names & set(CHOICES)), host=host
    )


def once(option: str, settings: Sequence[str]) -> None:
    """Refuse an axis that an option of its own and ``--set`` both give.

    Args:
        option: as ``axis=value``.

    Raises:
        SpecError: both do.
    """
    axis = option.partition("=")[0]
    if any(text.partition("=")[0].strip() == axis for text in settings):
        name = f"--{axis.replace('_', '-')}"
        raise SpecError(f"{name} and --set {axis} are the same", name, "give one of them")


def stand_in(parameters: float, groups: int) -> ModelShape:
    """A model of that many parameters in equal layers.

    Raises:
        SpecError: not a number of parameters.
    """
    if not 1 <= parameters <= 1e14:
        raise SpecError(f"{parameters:g} is not a number of parameters", "--params", "for example 7.6e9")
    total = round(parameters)
    layers = max(1, round(total / _LAYER_NUMEL))
    sizes = [total // layers + (1 if layer < total % layers else 0) for layer in range(layers)]
    every = tuple(Parameter(f"layers.{number}", size) for number, size in enumerate(sizes))
    return ModelShape(every, grouped(every, groups), max(sizes), 0)


def _subject(cell: Cell, shape: ModelShape | None) -> str:
    value = cell.effective
    model = str(value("model"))
    if shape is not None:
        count, unit = (shape.numel / 1e9, "billion") if shape.numel >= 1e9 else (shape.numel / 1e6, "million")
        model = f"{count:.4g} {unit} parameters"
    elif model in ("linear", "transformer"):
        model = f"{model} {value('hidden_dim')}×{value('nlayers')}"
    chosen = str(value("included_state"))
    states = "all states" if chosen == ALL else states_label(chosen)
    return f"{model} · {value('dtype')} · ZeRO-{value('zero_stage')} · {states}"
