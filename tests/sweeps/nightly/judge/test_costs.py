"""What the costs' verdicts come to on real timings, made by ``timings.py``.

``timings.csv`` is what the judge's constants were chosen by, ``timings_held_out.csv`` was measured
afterwards: its rates are those to expect.
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeps.engine import reference_work
from sweeps.nightly.judge.costs import MOST_BUSY
from sweeps.nightly.judge.judgement import judge
from sweeps.nightly.judge.rules import Judge
from tests.sweeps.nightly.frames import at_most

JUDGE = Judge()
TIMINGS = pd.read_csv(Path(__file__).with_name("timings.csv"))
HELD_OUT = pd.read_csv(Path(__file__).with_name("timings_held_out.csv"))
FALSE = {"worse", "better"}
"""Verdicts that are wrong where nothing changed."""
LOAD_ON_AND_OFF = ("quiet", "loaded", "switched")
CELL = ["dataset", "row"]


def night(rng: np.random.Generator, kinds: tuple[str, ...], factor: float = 1.0) -> pd.DataFrame:
    """A night whose cells are drawn from real nights of these kinds, one by one."""
    parts = []
    for _, cell in TIMINGS[TIMINGS["kind"].isin(kinds)].groupby(CELL):
        parts.append(cell[cell["night"] == rng.choice(cell["night"].unique())])
    return judgeable(pd.concat(parts), factor)


def held_out_nights(kinds: tuple[str, ...], factor: float = 1.0) -> list[pd.DataFrame]:
    """Whole nights as they were: what all of a night's cells have in common is left in them."""
    nights = HELD_OUT[HELD_OUT["kind"].isin(kinds)].groupby("night")
    return [judgeable(rows, factor) for _, rows in nights]


def judgeable(rows: pd.DataFrame, factor: float) -> pd.DataFrame:
    rows = rows.assign(sweep="timed", calibrator="identity", ece=0.1, nll=0.1, error=0.1)
    return rows.assign(work_seconds=rows["cpu_seconds"] * factor)


def verdicts(tonight: pd.DataFrame, baseline: pd.DataFrame) -> set[str]:
    lines = judge(tonight, baseline, JUDGE)
    return set(lines[lines["metric"] == "cost"]["verdict"])


def test_load_makes_no_alarm_in_fifty_nights() -> None:
    rng = np.random.default_rng(0)
    kinds = LOAD_ON_AND_OFF
    said = [verdicts(night(rng, kinds), night(rng, kinds)) for _ in range(50)]
    assert set().union(*said).isdisjoint({"worse", "better"})
    quiet = [verdicts(night(rng, ("quiet",)), night(rng, ("quiet",))) for _ in range(50)]
    assert set().union(*quiet).isdisjoint({"worse", "better"})


def test_code_that_is_slower_by_a_fifth_is_found_in_nine_nights_of_ten() -> None:
    rng = np.random.default_rng(1)
    nights = [(night(rng, ("quiet",), 1.2), night(rng, ("quiet",))) for _ in range(50)]
    assert sum("worse" in verdicts(*pair) for pair in nights) >= 45


def test_nights_in_which_every_fifth_batch_was_really_trained_twice_are_found() -> None:
    """That is a sixth more work, in all."""
    rng = np.random.default_rng(2)
    nights = [(night(rng, ("slower",)), night(rng, ("quiet",))) for _ in range(50)]
    assert sum("worse" in verdicts(*pair) for pair in nights) >= 45


def test_on_timings_that_chose_nothing_the_level_holds_and_a_fifth_is_found() -> None:
    """An alarm in a night without a change is as likely as the judge's level allows."""
    usual, slower = (held_out_nights(("quiet",), factor) for factor in (1.0, 1.2))
    pairs = list(itertools.combinations(range(len(usual)), 2))
    alarms = sum(not FALSE.isdisjoint(verdicts(usual[a], usual[b])) for a, b in pairs)
    found = sum("worse" in verdicts(slower[a], usual[b]) for a, b in pairs)
    assert alarms <= at_most(JUDGE.baseline_level, len(pairs))
    assert found >= 0.9 * len(pairs)
    loaded = held_out_nights(LOAD_ON_AND_OFF)
    drawn = np.random.default_rng(3).permuted(np.tile(np.arange(len(loaded)), (25, 1)), axis=1)
    alarms = sum(not FALSE.isdisjoint(verdicts(loaded[a], loaded[b])) for a, b, *_ in drawn)
    assert alarms <= at_most(JUDGE.baseline_level, len(drawn))


def test_seconds_of_the_process_alone_would_not_do() -> None:
    """Load changes them by more than the change that is looked for."""
    by_night = TIMINGS.groupby(["kind", "night"])["cpu_seconds"].mean()
    assert by_night["loaded"].mean() / by_night["quiet"].mean() > 1.15


def test_load_is_noticed_by_the_clock() -> None:
    busy = TIMINGS.groupby(["kind", "night", *CELL])["busy"].mean()
    assert (busy["loaded"] > MOST_BUSY).all()
    assert (busy["quiet"] < MOST_BUSY).mean() > 0.9


def test_the_reference_work_is_frozen() -> None:
    """A change needs a higher version: times of different versions are never compared."""
    source = Path(str(reference_work.__file__)).read_bytes()
    digest = hashlib.sha256(source).hexdigest()[:16]
    assert (reference_work.VERSION, digest) == (1, "66bdd726d31b6265")


def test_the_reference_work_uses_nothing_of_ours() -> None:
    source = Path(str(reference_work.__file__)).read_text()
    assert "import" in source
    assert not any(
        f"{verb} {name}" in source
        for verb in ("import", "from")
        for name in ("sweeps", "calibration")
    )


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_reference_work_leaves_the_threads_as_they_are(repeats: int) -> None:
    import torch

    before = torch.get_num_threads()
    work = reference_work.ReferenceWork()
    for _ in range(repeats):
        work()
    assert torch.get_num_threads() == before
