"""The drills, one function each: what ``python -m tests.faults.drill`` can do to a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.faults.drills.clock import clock_set_back
from tests.faults.drills.deletions import deletions
from tests.faults.drills.full_disk import full_disk
from tests.faults.drills.kills import random_kills
from tests.faults.drills.large_inputs import large_input
from tests.faults.drills.many_trials import many_trials
from tests.faults.drills.outcome import Outcome, Setting
from tests.faults.drills.slow_server import slow_server


class Drill(NamedTuple):
    """A drill by its name; a bulky one takes minutes or gigabytes and is run on request."""

    name: str
    play: Callable[[Setting], Iterator[Outcome]]
    bulky: bool = True


DRILLS = (
    Drill("kills", random_kills, bulky=False),
    Drill("full-disk", full_disk),
    Drill("deletions", deletions),
    Drill("clock", clock_set_back),
    Drill("many-trials", many_trials),
    Drill("slow-server", slow_server),
    Drill("csv-rows", large_input("csv_of_five_million_rows")),
    Drill("npz-bomb", large_input("npz_bomb")),
    Drill("csv-bomb", large_input("csv_bomb")),
    Drill("parquet-bomb", large_input("parquet_bomb")),
    Drill("classes", large_input("ten_thousand_classes")),
)
