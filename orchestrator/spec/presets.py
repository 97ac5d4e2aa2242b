"""Which states does a word mean? Named sets for ``included_state``."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from orchestrator.spec.axes import STATE_NAMES

ALL = "all"
JOIN = "+"


def _without(*left: str) -> tuple[str, ...]:
    return tuple(name for name in STATE_NAMES if name not in left)


PRESETS = MappingProxyType(
    {
        # A stack that syncs weights to its inference engine keeps them on the device meanwhile.
        "keep_lp_params": _without("lp_params"),
        # Gradients are rewritten by the next backward: nothing of value is lost without them.
        "keep_lp_grads": _without("lp_grads"),
        "optimizer_only": ("optim_states", "hp_params"),
        "weights_only": ("hp_params", "lp_params"),
        "copied_only": _without("contiguous_grad_buffer"),
    }
)
"""Preset -> the states it names."""


def canonical_states(names: Iterable[str]) -> str:
    """``all`` or the names joined by ``+`` in ``STATE_NAMES`` order; presets are unfolded.

    Raises:
        KeyError: for a word that is neither a state nor a preset.
    """
    wanted: set[str] = set()
    for name in names:
        if name == ALL:
            wanted.update(STATE_NAMES)
        elif name in PRESETS:
            wanted.update(PRESETS[name])
        elif name in STATE_NAMES:
            wanted.add(name)
        else:
            raise KeyError(name)
    if len(wanted) == len(STATE_NAMES):
        return ALL
    return JOIN.join(name for name in STATE_NAMES if name in wanted)


def states_of(canonical: str) -> tuple[str, ...]:
    """The single states of a canonical set."""
    return STATE_NAMES if canonical == ALL else tuple(canonical.split(JOIN))


def states_label(canonical: str) -> str:
    """A canonical set as a person calls it: the preset of that name if there is one."""
    return _LABELS.get(canonical, canonical)


_LABELS = {canonical_states([name]): name for name in PRESETS}
