"""Nights that go wrong in every way but training: nothing is judged as good by mistake."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow.tracking import MlflowClient
from torch import Tensor

from calibration.methods.focal import Focal
from calibration.methods.method import Numbers
from calibration.models import Output
from sweeps.nightly.archive.baseline import accept, read_baseline
from sweeps.nightly.archive.history import read_history
from sweeps.nightly.archive.nights import HISTORY_FILE, Nights
from sweeps.nightly.judge import assessment
from sweeps.nightly.judge.changes import changes
from sweeps.nightly.judge.rules import Judge
from sweeps.nightly.run import collection
from sweeps.nightly.run import identity as identities
from sweeps.nightly.run import night as night_module
from sweeps.nightly.run.suite import load_suite
from sweeps.store import StoreError
from sweeps.tracking.mlflow import night_run as night_tracking
from sweeps.tracking.mlflow.night_run import NightRun
from tests.sweeps.nightly.kit import (
    FIRST,
    SEARCHED,
    SECOND,
    THIRD,
    Scene,
    StoppedError,
    reference_takes,
)
from tests.tracked import empty_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_second_of_reference_work")]


def verdict_tag(scene: Scene, date: str) -> tuple[str, str]:
    """Status and verdict of a night's run in MLflow."""
    client = MlflowClient(f"sqlite:///{scene.nights.directory / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    runs = client.search_runs([experiment.experiment_id])
    (run,) = (run for run in runs if run.info.run_name == f"small {date}")
    return run.info.status, run.data.tags["calsweep.verdict"]


def test_the_first_day_broken_and_run_again_is_compared_with_what_it_was(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = Focal.loss

    def upwards(self: Focal, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        return -loss(self, output, labels, numbers)

    monkeypatch.setattr(Focal, "loss", upwards)
    monkeypatch.setattr(identities, "_code", lambda: "broken")
    verdict = begun.run(FIRST)
    assert (verdict.overall, verdict.exit_code, verdict.first) == ("regression", 1, False)
    assert "first complete night" not in " ".join(verdict.sentences)


def test_a_lost_baseline_is_not_replaced_by_whatever_comes_next(begun: Scene) -> None:
    (begun.nights.directory / "baseline.json").unlink()
    verdict = begun.run(SECOND)
    assert (verdict.status, verdict.overall, verdict.exit_code) == ("complete", "incomplete", 1)
    command = (
        f"calsweep baseline accept small --night {FIRST} --nights {begun.directory / 'nights'}"
    )
    assert "there are earlier nights but no baseline; accept one" in verdict.sentences[0]
    assert f"{command} --reason" in verdict.sentences[0]
    assert read_baseline(begun.nights) is None
    accept(begun.nights, FIRST, "found again")
    assert begun.run(SECOND).overall == "identical"


def test_what_is_no_number_is_no_result(quick: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    tidy = collection._tidy
    value = math.nan

    def broken(*given: Any) -> pd.DataFrame:
        frame = tidy(*given)
        return frame.assign(nll=frame["nll"].where(frame["calibrator"] != "temperature", value))

    monkeypatch.setattr(collection, "_tidy", broken)
    for date in (FIRST, SECOND):
        verdict = quick.run(date)
        assert (verdict.status, verdict.overall) == ("failed", "incomplete")
        assert verdict.reasons == [
            "searched: focal + temperature on iris: nll is not a number on 3 of 3 seeds"
        ]
    assert read_baseline(quick.nights) is None
    value = math.inf
    assert quick.run(THIRD).first, "a calibrator may give zeros"


def test_a_good_verdict_does_not_outlive_what_it_was_said_of(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.run(SECOND)
    assert verdict_tag(begun, SECOND) == ("FINISHED", "identical")
    monkeypatch.setattr(identities, "_code", lambda: "other")
    begun.limit = 2
    with pytest.raises(StoppedError):
        begun.run(SECOND)
    left = {path.name for path in begun.nights.place(SECOND).iterdir()}
    assert left.isdisjoint({"verdict.json", "report.html", "report.md"})
    assert set(read_history(begun.nights)["night"]) == {FIRST}
    assert verdict_tag(begun, SECOND) == ("KILLED", "incomplete")


def test_a_finished_night_run_again_keeps_its_measure_of_the_machine(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference_takes(monkeypatch, 2.0)
    assert begun.run(SECOND).speed == 2.0
    reference_takes(monkeypatch, 1.0)
    for _ in range(2):
        assert begun.run(SECOND).speed == 2.0


def test_an_error_after_the_training_leaves_no_night_running(
    quick: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> str:
        raise RuntimeError("a chart broke")

    with monkeypatch.context() as planted:
        planted.setattr(night_module, "night_page", full)
        with pytest.raises(RuntimeError, match="a chart broke"):
            quick.run(FIRST)
    state = quick.nights.state(FIRST)
    assert state is not None
    assert (state.status, state.reason) == ("unfinished", "a chart broke")
    assert not (quick.nights.place(FIRST) / "verdict.json").exists()
    assert quick.trained
    assert quick.run(FIRST).overall == "identical", "the baseline had been made"
    assert not quick.trained


def test_a_full_disk_does_not_hide_why_the_night_ended(
    quick: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state = Nights.write_state

    def full(self: Nights, state: Any) -> None:
        if state.status == "unfinished":
            raise StoreError("the disk is full")
        write_state(self, state)

    monkeypatch.setattr(Nights, "write_state", full)
    quick.limit = 1
    with pytest.raises(StoppedError, match="the power went off"):
        quick.run(FIRST)


def test_an_identical_night_does_not_drift(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the nights of the trend's window, without the baseline's, may say so."""
    trends = assessment.trends

    def drifting(history: pd.DataFrame, settings: Judge) -> pd.DataFrame:
        return trends(history, settings).assign(verdict="drifting")

    monkeypatch.setattr(assessment, "trends", drifting)
    assert begun.run(SECOND).overall == "identical"


def test_a_history_that_cannot_be_read_is_not_made_anew(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begun.nights.directory / HISTORY_FILE
    content = path.read_bytes()
    read = Path.read_bytes

    def refused(self: Path) -> bytes:
        if self == path:
            raise PermissionError(13, "Permission denied")
        return read(self)

    with monkeypatch.context() as planted:
        planted.setattr(Path, "read_bytes", refused)
        with pytest.raises(StoreError, match=r"cannot read .*history\.parquet: Permission denied"):
            read_history(begun.nights)
    assert path.read_bytes() == content


def test_every_metric_reaches_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than it takes in a call."""
    monkeypatch.setattr(night_tracking, "MOST_METRICS", 2)
    (tmp_path / "mlflow.db").write_bytes(empty_database())
    run = NightRun("small", FIRST, f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)
    numbers = {f"ece/{place}": float(place) for place in range(5)}
    run.end("FINISHED", {"calsweep.verdict": "fine"}, numbers, {})
    assert run.problem == ""
    client = MlflowClient(run.uri)
    experiment = client.get_experiment_by_name("small")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.data.metrics == numbers
    assert found.data.tags["calsweep.verdict"] == "fine"


USERS = """\
from calibration.methods.focal import Focal
from beside import SIZE

class Mine(Focal):
    pass
"""


def test_a_users_own_modules_and_data_by_sweep_are_part_of_what_a_night_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    scene = Scene(tmp_path)
    plain = SEARCHED.replace("name: searched", "name: plain")
    scene.write("own_losses.py", USERS)
    scene.write("beside.py", "SIZE = 1\n")
    own = SEARCHED.replace("focal: {", "mine: {method: 'own_losses:Mine', ")
    scene.write_suite(searched=own, plain=plain)
    suite = load_suite(tmp_path / "small.yaml")
    before = identities.identity(suite)
    assert {"data searched iris", "data plain iris"} <= before.keys()
    scene.write("beside.py", "SIZE = 2\n")
    now = identities.identity(suite)
    assert [change.what for change in changes(before, now)] == ["modules"]
    scene.write("own_losses.py", USERS + "\n")
    assert identities.identity(suite)["modules"] not in (before["modules"], now["modules"])
    scene.write_suite(plain=plain)
    assert "modules" not in identities.identity(load_suite(tmp_path / "small.yaml"))
    there = identities.identity(suite, elsewhere=True)
    assert there["cpu of this machine"] == before["cpu"]
    assert "cpu" not in there


def test_commands_are_right_for_any_suite_and_place() -> None:
    ready, mine = Nights(Path("nights"), "nightly"), Nights(Path("a b"), "v1.2", "my/v1.2.yaml")
    assert ready.finish(FIRST) == f"calsweep nightly --night {FIRST}"
    assert ready.accept(FIRST) == f"calsweep baseline accept --night {FIRST} --reason '…'"
    assert mine.finish(FIRST) == f"calsweep nightly my/v1.2.yaml --night {FIRST} --nights 'a b'"
    assert mine.accept() == "calsweep baseline accept v1.2 --nights 'a b' --reason '…'"


def test_what_python_runs_before_us_is_part_of_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = identities._site_customisation()
    (tmp_path / "sitecustomize.py").write_text("import torch\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sitecustomize", raising=False)
    changed = identities._site_customisation()
    assert changed != before
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "plain.pth").write_text("/some/where\n")
    monkeypatch.syspath_prepend(packages)
    assert identities._site_customisation() == changed, "a path alone runs nothing"
    (packages / "hook.pth").write_text("import hook; hook.install()\n")
    assert identities._site_customisation() != changed


def test_gpus_their_driver_and_pythonpath_are_part_of_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.write_suite(searched=SEARCHED)
    suite = load_suite(tmp_path / "small.yaml")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    before = identities.identity(suite)
    monkeypatch.setenv("PYTHONPATH", "/opt/patched")
    monkeypatch.setattr(identities, "_gpus", lambda: "NVIDIA L4")
    monkeypatch.setattr(identities, "_gpu_driver", lambda: "580.65.06")
    found = {change.what: change.now for change in changes(before, identities.identity(suite))}
    assert found == {
        "gpu": "NVIDIA L4",
        "gpu driver": "580.65.06",
        "PYTHONPATH": "/opt/patched",
    }
    there = identities.identity(suite, elsewhere=True)
    assert there["gpu of this machine"] == "NVIDIA L4"


def test_the_drivers_version_is_read_from_its_kernel_module(tmp_path: Path) -> None:
    told = tmp_path / "version"
    told.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:16:20 UTC 2025\n"
        "GCC version:  gcc version 13.3.0\n"
    )
    assert identities._gpu_driver(told) == "580.65.06"
    assert identities._gpu_driver(tmp_path / "absent") == ""
