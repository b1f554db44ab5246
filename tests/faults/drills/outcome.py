"""What a drill is given and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tests.faults.leftovers import Trace

KINDS = ("lost", "doubled", "left over", "wrong")
Kind = Literal["lost", "doubled", "left over", "wrong"]


class Violation(NamedTuple):
    """A promise that was not kept."""

    kind: Kind
    what: str


@dataclass(frozen=True)
class Setting:
    """Where a drill takes place, how often, and by which chances."""

    directory: Path
    seed: int = 7
    rounds: int = 20
    first: int = 1


@dataclass(frozen=True)
class Outcome:
    """One round: what was done, what was seen, and where it lies; drawn up at its end.

    ``drivers`` are the ids of the processes by which its leftovers are known.
    """

    what: str
    seen: str
    seconds: float
    place: Path
    violations: list[Violation] = field(default_factory=list)
    drivers: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.what}: {self.seen}, {self.seconds:.0f} s"
        return "\n".join([told, *(f"    {kind}: {what}" for kind, what in self.violations)])


def left_over(trace: Trace) -> list[Violation]:
    """What is still there of processes that are over."""
    running, files = trace.left()
    found = {"processes": running, "temporary files": files}
    return [Violation("left over", f"{what}: {'; '.join(n)}") for what, n in found.items() if n]


def judged(what: str, place: Path, act: Callable[[Path], str]) -> Iterator[Outcome]:
    """A drill of one round: ``act`` says what it found in ``place``, or what is wrong."""
    place.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    violations: list[Violation] = []
    seen = "violated"
    try:
        seen = act(place)
    except AssertionError as error:
        violations.append(Violation("wrong", str(error) or repr(error)))
    yield Outcome(what, seen, time.monotonic() - began, place, violations)
