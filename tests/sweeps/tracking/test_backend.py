"""The protocol of tracking backends is enough for another one, in one file."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sweeps.tracking import Recorder, TrackingError, sync
from tests.sweeps.tracking.csv_backend import CsvBackend
from tests.tracked import body, make_plan, train


def table(directory: Path) -> pd.DataFrame:
    return pd.read_csv(directory / "trials.csv", dtype={"key": str}).set_index("key")


def test_a_sweep_is_recorded_as_it_goes_on(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    recorder = Recorder(CsvBackend(tmp_path, plan))
    first = plan.next()
    assert first is not None
    train(plan, first)
    plan.complete(first.key)
    recorder.submit(first)
    while (trial := plan.next()) is not None:
        train(plan, trial)
        plan.complete(trial.key)
        recorder.submit(trial)
    assert recorder.close("all is well") == 0
    assert recorder.error == ""
    lines = table(tmp_path)
    assert set(lines.index) == {trial.key for trial in plan.trials.values()}
    assert set(lines["status"]) == {"done"}
    assert (tmp_path / "sweep.csv").read_text().startswith("ended,all is well,")


def test_a_running_trial_is_shown_up_to_its_checkpoint(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    first = plan.next()
    assert first is not None
    plan.store.write_live(first.key, body(4))
    CsvBackend(tmp_path, plan).connect(lambda: None).publish_live(first)
    line = table(tmp_path).loc[first.key]
    assert (line["status"], line["epochs"]) == ("running", 4)


def test_what_is_there_is_not_published_again_and_what_is_lost_is(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    while (trial := plan.next()) is not None:
        train(plan, trial)
        plan.complete(trial.key)
    trials = list(plan.trials.values())
    backend = CsvBackend(tmp_path, plan)
    assert sync(backend, trials, "words") == len(trials)
    assert sync(backend, trials, "words") == 0
    lines = (tmp_path / "trials.csv").read_text().splitlines(keepends=True)
    (tmp_path / "trials.csv").write_text("".join(lines[:-2]))
    assert sync(backend, trials, None) == 2
    assert (tmp_path / "sweep.csv").read_text() == "interrupted\n"


def test_a_place_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    with pytest.raises(TrackingError, match=f"cannot publish to {tmp_path}/nowhere: .*sync again"):
        sync(CsvBackend(tmp_path / "nowhere", plan), [], "words")
