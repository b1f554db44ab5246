"""Nights of a small suite: judged, stopped, resumed, planted with real mistakes."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console
from torch import Tensor

from calibration.calibrators import temperature
from calibration.methods import Batch
from calibration.methods.bo4sc import Bo4sc
from calibration.methods.focal import Focal
from calibration.methods.method import Numbers
from calibration.models import Output
from sweeps.cli.main import main, nightly
from sweeps.errors import UserError
from sweeps.nightly.archive.baseline import accept, read_baseline
from sweeps.nightly.archive.history import read_history
from sweeps.nightly.archive.nights import Day
from sweeps.nightly.run import identity as identities
from sweeps.store import Store
from tests.sweeps.nightly.kit import (
    FIRST,
    PAPER,
    SEARCHED,
    SECOND,
    THIRD,
    Scene,
    StoppedError,
    reference_takes,
    worse,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_second_of_reference_work")]


def test_the_first_complete_night_becomes_the_baseline_and_says_so(quick: Scene) -> None:
    assert quick.run(FIRST).exit_code == 0
    said = quick.verdict(FIRST)
    assert said["verdict"] == "fine"
    assert "first complete night" in said["sentences"][0]
    assert said["baseline"]["first"]
    assert said["baseline"]["night"] == FIRST
    baseline = read_baseline(quick.nights)
    assert baseline is not None
    assert len(baseline.results) == 6, "two calibrators and three seeds"
    assert set(baseline.results["sweep"]) == {"searched"}
    assert set(baseline.results["seed"]) == {1, 2, 3}
    files = {path.name for path in quick.nights.place(FIRST).iterdir()}
    assert files >= {"night.json", "results.parquet", "verdict.json", "report.html", "report.md"}


def test_an_unchanged_night_is_identical_to_the_bit(begun: Scene) -> None:
    verdict = begun.run(SECOND)
    assert len(begun.trained) == 5, "nothing is taken from another night"
    assert (verdict.overall, verdict.exit_code) == ("identical", 0)
    assert "Bit-identical to the baseline of 2026-01-05" in verdict.sentences[0]
    assert verdict.changed == []
    said = begun.verdict(SECOND)
    assert said["identical"]
    assert said["digest"] == begun.verdict(FIRST)["digest"]
    assert {c["verdict"] for c in said["cells"] if c["metric"] != "cost"} == {"identical"}
    assert set(read_history(begun.nights)["night"]) == {FIRST, SECOND}


def test_a_broken_temperature_and_a_misscaled_outer_rate_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solver stops too early; and a weight's step forgets the size of its batch."""
    scene = Scene(tmp_path)
    scene.write_suite(paper=PAPER)
    assert scene.run(FIRST).first
    best, moved = temperature.best_temperature, Bo4sc._moved

    def halfway(*given: Any, **more: Any) -> tuple[float, bool]:
        return best(*given, **more)[0] ** 0.1, True

    def unscaled(
        self: Bo4sc, weights: Tensor, slope: Tensor, numbers: dict[str, Tensor], b: Sequence[Batch]
    ) -> Tensor:
        rows = float(len(b[0].rows))
        return moved(self, weights, slope / rows, numbers, b)

    monkeypatch.setattr(temperature, "best_temperature", halfway)
    monkeypatch.setattr(Bo4sc, "_moved", unscaled)
    verdict = scene.run(SECOND)
    assert verdict.overall == "regression"
    assert verdict.exit_code == 1
    assert worse(verdict) >= {("standard", "temperature", "nll"), ("bo4sc", "identity", "nll")}
    assert ("bo4sc", "identity", "ece") in worse(verdict)
    told = " ".join(verdict.sentences)
    assert "paper · blobs-1.7 · standard + temperature: NLL" in told
    assert "paper · blobs-1.7 · bo4sc: NLL" in told
    # What was not touched is what it was, to the bit.
    lines = verdict.lines.set_index(["sweep", "row", "calibrator", "metric"])["verdict"]
    assert lines["paper", "standard", "identity", "nll"] == "identical"
    command = f"calsweep baseline accept small --night 2026-01-06 --nights {tmp_path / 'nights'}"
    assert command in (scene.nights.place(SECOND) / "report.html").read_text()
    baseline = read_baseline(scene.nights)
    assert baseline is not None
    assert baseline.about.night == FIRST


def test_a_stopped_night_is_unfinished_and_resumed_where_it_was(quick: Scene) -> None:
    quick.limit = 3
    with pytest.raises(StoppedError):
        quick.run(FIRST)
    state = quick.nights.state(FIRST)
    assert state is not None
    assert (state.status, state.reason) == ("unfinished", "the power went off")
    assert read_baseline(quick.nights) is None
    begun = quick.trained
    quick.limit = 100
    verdict = quick.run(FIRST)
    assert "resuming the night of" in quick.told[0]
    assert len(begun) + len(quick.trained) == 5
    assert set(begun).isdisjoint(quick.trained)
    assert (verdict.status, verdict.first) == ("complete", True)
    assert quick.run(SECOND).overall == "identical", "stopped or not, it is the same night"


def test_a_night_that_runs_into_its_time_limit_is_incomplete(quick: Scene) -> None:
    quick.pause = 30.0
    verdict = quick.run(FIRST, limit=0.3)
    assert (verdict.status, verdict.overall, verdict.exit_code) == ("unfinished", "incomplete", 1)
    assert verdict.reasons[0].startswith("the time limit of 0.3 s")
    assert verdict.sentences[-1] == (
        f"To finish it: calsweep nightly {quick.directory / 'small.yaml'} --night 2026-01-05 "
        f"--nights {quick.directory / 'nights'}"
    )
    assert read_baseline(quick.nights) is None
    quick.pause = 0.0
    assert quick.run(FIRST).first


def test_a_night_left_running_and_days_without_one_are_shown(begun: Scene) -> None:
    state = begun.nights.state(FIRST)
    assert state is not None
    left = {"night": THIRD, "status": "running", "verdict": ""}
    begun.nights.write_state(state.model_copy(update=left))  # as a killed process leaves it
    verdict = begun.run("2026-01-09")
    assert "2026-01-07 did not finish" in begun.told[0]
    days = {day.night: day for day in verdict.days}
    assert list(days) == [f"2026-01-0{day}" for day in range(5, 10)]
    assert days[SECOND] == Day(SECOND, "missed")
    assert (days[THIRD].status, days[THIRD].verdict) == ("unfinished", "incomplete")
    page = (begun.nights.place("2026-01-09") / "report.html").read_text()
    assert "Not run: 2026-01-06, 2026-01-08." in page
    assert "Not finished, and not judged: 2026-01-07." in page
    assert set(read_history(begun.nights)["night"]) == {FIRST, "2026-01-09"}


def test_a_night_with_failures_is_incomplete_and_never_a_baseline(
    quick: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = Focal.loss

    def broken(self: Focal, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        if len(quick.trained) == 4:
            raise ArithmeticError("a mistake")
        return loss(self, output, labels, numbers)

    with monkeypatch.context() as planted:
        planted.setattr(Focal, "loss", broken)
        verdict = quick.run(FIRST)
    assert (verdict.status, verdict.overall, verdict.exit_code) == ("failed", "incomplete", 1)
    assert any("1 of 5 trials failed" in reason for reason in verdict.reasons)
    assert any("ArithmeticError: a mistake" in reason for reason in verdict.reasons)
    assert any("focal on iris has 2 of 3 seeds" in reason for reason in verdict.reasons)
    assert read_baseline(quick.nights) is None
    assert read_history(quick.nights).empty
    with pytest.raises(UserError, match="no night of 'small' is complete"):
        accept(quick.nights, None, "")
    with pytest.raises(UserError, match="night 2026-01-05 is failed"):
        accept(quick.nights, FIRST, "")
    # Mended and run again, what failed is tried again.
    assert quick.run(FIRST).first
    assert len(quick.trained) == 1


def test_a_cell_that_is_gone_is_not_taken_for_good(
    begun: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    begun.write_suite(searched=SEARCHED.replace("calibrators: [temperature]", "calibrators: []"))
    verdict = begun.run(SECOND)
    assert (verdict.status, verdict.overall, verdict.exit_code) == ("complete", "incomplete", 1)
    lead = "Incomplete: missing tonight, though the baseline has it: searched · iris · focal + t"
    assert verdict.sentences[0].startswith(lead)
    assert [change.what for change in verdict.changed] == ["spec searched"]
    shown = io.StringIO()
    nightly._print(verdict, begun.nights.place(SECOND), Console(file=shown, width=1000))
    root = begun.directory / "nights"
    command = f"calsweep baseline accept small --night {SECOND} --nights {root} --reason '…'"
    assert shown.getvalue().endswith(f"to accept this as the new baseline: {command}\n")
    assert main(["baseline", "accept", "small", "--nights", str(root)]) == 0
    lost = "this one does not have:\nsearched · iris · focal + temperature\n"
    assert capfd.readouterr().out.endswith(lost)
    assert begun.run(THIRD).overall == "identical"


def test_a_night_begun_with_other_code_starts_anew(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = begun.trained
    monkeypatch.setattr(identities, "_code", lambda: "other")
    verdict = begun.run(FIRST)
    assert begun.trained == before, "all of it again: the same trials"
    assert "runs-1" in begun.told[0]
    assert Store(begun.nights.place(FIRST) / "runs-1").trial_keys()
    assert [change.what for change in verdict.changed] == ["code"]
    assert (verdict.overall, verdict.first) == ("identical", False), "compared, not accepted anew"


def test_costs_are_compared_at_the_machines_speed(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference_takes(monkeypatch, 2.0)
    verdict = begun.run(SECOND)
    assert verdict.speed == 2.0
    history = read_history(begun.nights).groupby("night")["reference"].first()
    assert dict(history) == {FIRST: 1.0, SECOND: 2.0}


def test_history_survives_its_file_and_its_nights(begun: Scene) -> None:
    begun.run(SECOND)
    whole = read_history(begun.nights)
    (begun.nights.directory / "history.parquet").write_bytes(b"damaged")
    pd.testing.assert_frame_equal(read_history(begun.nights), whole)
    for night in (FIRST, SECOND):
        shutil.rmtree(begun.nights.place(night))
    verdict = begun.run(THIRD)
    assert verdict.overall == "identical"
    assert [(day.night, day.status) for day in verdict.days] == [
        (FIRST, "complete"),
        (SECOND, "complete"),
        (THIRD, "complete"),
    ]


def test_a_night_does_not_need_mlflow(quick: Scene) -> None:
    verdict = quick.run(FIRST, tracking="http://user:Pa55word@127.0.0.1:9")
    assert verdict.overall == "fine"
    assert quick.parent is None
    (told,) = quick.told
    assert told.startswith("MLflow could not be reached at http://***@127.0.0.1:9: ")
    assert "Pa55word" not in told


def test_mlflow_has_a_dated_parent_run_with_the_verdict(begun: Scene) -> None:
    begun.run(FIRST)
    client = MlflowClient(f"sqlite:///{begun.nights.directory / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == begun.parent
    assert run.info.run_name == "small 2026-01-05"
    assert run.info.status == "FINISHED"
    assert run.data.tags["calsweep.verdict"] == "identical", "the second time, to itself"
    assert run.data.tags["mlflow.note.content"].startswith("# small 2026-01-05")
    assert run.data.metrics["trials"] == 5
    assert run.data.metrics["nll/searched/iris/focal:temperature"] > 0
    artifacts = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert artifacts == {
        *("night.json", "report.html", "report.md", "results.parquet", "verdict.json")
    }
