"""A regression that lasts: since when, by which commits, and as news only once."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from sweeps.cli.main import main
from sweeps.cli.night_messages import message_of
from sweeps.nightly.archive import history as past
from sweeps.nightly.archive.baseline import FIRST, accept, make_baseline, read_baseline
from sweeps.nightly.archive.nights import Nights, NightState
from sweeps.nightly.archive.results import RESULTS_FILE, digest, parquet
from sweeps.nightly.judge.assessment import assess
from sweeps.nightly.judge.rules import Judge
from sweeps.nightly.judge.verdict import VERDICT_FILE, Verdict
from sweeps.tracking.mlflow.night_run import NightRun
from tests.sweeps.nightly.frames import Array, frame, only

WHERE = ("digits", "focal", "temp")


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path, "nightly")


def night(nights: Nights, day: int, worse: float | Array = 0.0, **times: float) -> Verdict:
    """Assess a night in which one ECE is so much worse, and keep its files."""
    results = frame(only(*WHERE, "ece", worse), seeds=8, **times).assign(converged=True)
    date = f"2026-11-{day:02d}"
    state = NightState(
        suite="nightly",
        night=date,
        status="complete",
        identity={"git": f"{day:07x}" + 33 * "0"},
        digest=digest(results),
    )
    nights.write_state(state)
    nights.write(date, RESULTS_FILE, parquet(results))
    history = past.keep(nights, state, results)
    first = read_baseline(nights) is None
    if first:
        make_baseline(nights, state, results, FIRST)
    baseline = read_baseline(nights)
    found = assess(state, results, [], [], baseline, history, Judge(), nights=nights, first=first)
    nights.write(date, VERDICT_FILE, found.json())
    return found


def test_a_regression_is_news_once_and_says_since_when(nights: Nights) -> None:
    for day in range(1, 5):
        night(nights, day)
    new = night(nights, 5, 0.05)
    assert (new.overall, new.ongoing) == ("regression", False)
    assert new.sentences[0].startswith("Regression: 1 value worse than the baseline, of ")
    commits = "(commits 0000004…0000005)"
    assert new.sentences[1].endswith(f": worse since 2026-11-05 {commits}")
    for day in (6, 7):
        again = night(nights, day, 0.05)
        assert (again.overall, again.ongoing, again.exit_code) == ("regression", True, 1)
        assert again.sentences[0].startswith("Ongoing regression: 1 value worse than")
        assert again.sentences[1].endswith(f": worse since 2026-11-05 {commits}, ongoing")
    (line,) = [cell for cell in _cells(again) if cell["verdict"] == "worse"]
    assert (line["since"], line["ongoing"]) == ("2026-11-05", True)


def test_what_was_fixed_and_breaks_again_is_news_again(nights: Nights) -> None:
    for day in (1, 2, 3):
        night(nights, day)
    night(nights, 4, 0.05)
    assert night(nights, 5).overall == "identical"
    again = night(nights, 6, 0.05)
    assert not again.ongoing
    assert "worse since 2026-11-06" in again.sentences[1]


def test_where_the_last_night_was_deleted_the_history_tells(nights: Nights) -> None:
    for day, worse in ((1, 0.0), (2, 0.0), (3, 0.05), (4, 0.05)):
        night(nights, day, worse)
    for day in (3, 4):
        shutil.rmtree(nights.place(f"2026-11-0{day}"))
    found = night(nights, 5, 0.05)
    assert found.ongoing
    assert "worse since 2026-11-03 (commits" in found.sentences[1]


def test_an_accepted_regression_is_the_new_level(nights: Nights) -> None:
    for day, worse in ((1, 0.0), (2, 0.05)):
        night(nights, day, worse)
    accept(nights, "2026-11-02", "it is meant so")
    assert night(nights, 3, 0.05).overall == "identical"
    new = night(nights, 4, 0.1)
    assert not new.ongoing
    assert "worse since 2026-11-04" in new.sentences[1]


def test_what_another_baseline_called_worse_is_news(nights: Nights) -> None:
    for day, worse in ((1, 0.0), (2, 0.05)):
        night(nights, day, worse)
    accept(nights, "2026-11-02", "it is meant so")
    new = night(nights, 3, 0.1)
    assert (new.overall, new.ongoing) == ("regression", False)
    assert new.sentences[0].startswith("Regression: 1 value worse than the baseline, of ")
    assert night(nights, 4, 0.1).ongoing


def test_slower_code_is_ongoing_though_a_busy_night_lies_between(nights: Nights) -> None:
    for day in (1, 2, 3):
        night(nights, day, pace=1 + 0.01 * day)
    new = night(nights, 4, pace=1.3)
    assert (new.overall, new.ongoing) == ("regression", False)
    assert new.sentences[1].startswith("all sweeps · every row: training work")
    assert new.sentences[1].endswith(": worse since 2026-11-04 (commits 0000003…0000004)")
    assert night(nights, 5, pace=1.3, busy=2.0).overall == "identical"
    again = night(nights, 6, pace=1.3)
    assert (again.overall, again.ongoing) == ("regression", True)
    worse = [each for each in again.sentences if ": worse" in each]
    assert len(worse) == 7, "all together, and each"
    assert all(each.endswith(", ongoing") for each in worse)
    assert night(nights, 7).overall == "identical"
    assert not night(nights, 8, pace=1.3).ongoing, "it had been fast"


@pytest.mark.parametrize("kind", ["trends", "steps"])
def test_what_many_nights_show_is_news_once(nights: Nights, kind: str) -> None:
    """A drift, and a step that no single night shows for the luck of its seeds."""
    rng = np.random.default_rng(0)
    before = news = 0
    for day in range(1, 20):
        change = 0.001 * day if kind == "trends" else 0.02 * (day > 8)
        luck = rng.normal(0, 0.004 if kind == "trends" else 0.016, 8)
        found = night(nights, day, change + luck)
        bad = getattr(found, kind)["verdict"].isin(("worse", "drifting"))
        if found.overall == "regression":
            assert found.ongoing == (before > 0), day
            assert found.sentences[0].startswith("Ongoing" if before else "Regression: 1 value")
            assert found.sentences[1].endswith(", ongoing") == found.ongoing
            before += 1
            news += bool(bad.any())
    assert before > 3
    assert news > 2, kind


def _cells(verdict: Verdict) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(verdict.json())["cells"]
    return found


def test_the_history_is_written_as_otava_reads_it(
    nights: Nights, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otava 0.8 was given such files once, and named the night and cell of a planted step."""
    for day, worse in ((1, 0.0), (2, 0.0), (3, 0.05)):
        night(nights, day, worse)
    out = tmp_path / "otava"
    command = ["baseline", "export", "nightly", "--nights", str(tmp_path), "--out", str(out)]
    assert main(command) == 0
    assert "3 nights written" in capsys.readouterr().out
    table = pd.read_csv(out / "history.csv", dtype={"commit": str})
    assert list(table["time"]) == ["2026-11-01", "2026-11-02", "2026-11-03"]
    assert list(table["commit"].str[:7]) == ["0000001", "0000002", "0000003"]
    stepped = table["small · digits · focal + temp, ece"]
    assert stepped.iloc[2] - stepped.iloc[1] == pytest.approx(0.05)
    assert table["small · digits · focal, cost"].notna().all()
    (test,) = yaml.safe_load((out / "otava.yaml").read_text())["tests"].values()
    columns = {metric["column"] for metric in test["metrics"].values()}
    assert columns == set(table.columns) - {test["time_column"], *test["attributes"]}


def test_messages_link_to_what_others_can_open(
    nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = NightRun("nightly", "2026-11-01", "https://me:secret@mlflow.example.org/", tmp_path)
    assert run.link == "", "while it has no run"
    run._run, run._experiment_id = "abc", "7"
    assert run.link == "https://mlflow.example.org/#/experiments/7/runs/abc"
    verdict = replace(night(nights, 1), link=run.link)
    served = argparse.Namespace(nights_url="https://ci.example.org/nights/")
    message = message_of(verdict, tmp_path / "report.html", served)
    assert message.links == {
        "report": "https://ci.example.org/nights/nightly/2026-11-01/report.html",
        "MLflow": run.link,
    }
    alone = argparse.Namespace(nights_url=None)
    assert message_of(night(nights, 1), tmp_path / "report.html", alone).links == {}
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/mine")
    monkeypatch.setenv("GITHUB_RUN_ID", "12")
    page = "https://github.example.org/me/mine/actions/runs/12"
    found = message_of(night(nights, 1), tmp_path / "report.html", alone)
    assert found.links == {"workflow": page}
