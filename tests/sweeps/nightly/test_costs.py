"""What the costs' verdicts come to on real timings, made by ``timings.py``.

``timings.csv`` is what the judge's constants were chosen by, ``timings_held_out.csv`` was measured
afterwards: its rates are those to expect.
"""

from __future__ import annotations

import hashlib
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
LOAD_ON_AND_OFF = ("quiet", "loaded", "switched")
CELL = ["dataset", "row"]


def night(
    rng: np.random.Generator,
    kinds: tuple[str, ...],
    factor: float = 1.0,
    timings: pd.DataFrame = TIMINGS,
) -> pd.DataFrame:
    """A night whose cells are drawn from real nights of these kinds, one by one."""
    parts = []
    for _, cell in timings[timings["kind"].isin(kinds)].groupby(CELL):
        parts.append(cell[cell["night"] == rng.choice(cell["night"].unique())])
    rows = pd.concat(parts)
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
    rng = np.random.default_rng(3)

    def drawn(*kinds: str, factor: float = 1.0) -> pd.DataFrame:
        return night(rng, kinds, factor, HELD_OUT)

    alarms = found = 0
    for kinds in (LOAD_ON_AND_OFF, ("quiet",)):
        for _ in range(25):
            alarms += "worse" in verdicts(drawn(*kinds), drawn(*kinds))
    for _ in range(50):
        found += "worse" in verdicts(drawn("quiet", factor=1.2), drawn("quiet"))
    assert alarms <= at_most(JUDGE.baseline_level, 50)
    assert found >= 45


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
