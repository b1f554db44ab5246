"""Inputs too large for the suite: the functions of ``tests.faults.bulky`` as drills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from tests.faults.drills.outcome import Outcome, Setting, judged


def large_input(name: str) -> Callable[[Setting], Iterator[Outcome]]:
    """The drill that calls this function with a directory; it says what it found, or raises."""

    def play(setting: Setting) -> Iterator[Outcome]:
        act = getattr(import_module("tests.faults.bulky"), name)
        return judged(name.replace("_", " "), setting.directory / name, act)

    return play
