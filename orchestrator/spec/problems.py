"""How are several mistakes of one file reported together? Collected, then raised as one SpecError."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.errors import SpecError

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file, counted from 1; ``where`` is the file's name or an option."""

    where: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.where}:{self.line}:{self.column}" if self.line else self.where


@dataclass(slots=True)
class Problems:
    """The mistakes found so far."""

    found: list[tuple[Mark, str, str]] = field(default_factory=list)

    def add(self, mark: Mark, what: str, fix: str = "") -> None:
        """Remember one mistake; the same one is kept once."""
        if (mark, what, fix) not in self.found:
            self.found.append((mark, what, fix))

    def raise_if_any(self) -> None:
        """Raise a SpecError with every mistake in the file's order, the first twenty in full."""
        if not self.found:
            return
        ordered = sorted(self.found, key=lambda item: item[0])
        if len(ordered) == 1:
            mark, what, fix = ordered[0]
            raise SpecError(what, str(mark), fix)
        lines = [SpecError(what, str(mark), fix).render() for mark, what, fix in ordered[:MOST_SHOWN]]
        if len(ordered) > MOST_SHOWN:
            lines.append(f"… and {len(ordered) - MOST_SHOWN} more")
        raise SpecError("\n".join(lines))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the nearest known word, else a list of them if it is short."""
    choices = sorted(known)
    # By small letters and one kind of dash: PIN-MEMORY is pin_memory to its writer.
    plain = {_plain(choice): choice for choice in reversed(choices)}
    near = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{plain[near[0]]}'?"
    return f"known: {', '.join(choices)}" if len(choices) <= 20 else ""


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
