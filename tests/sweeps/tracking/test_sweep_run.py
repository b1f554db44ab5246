"""What the end of a sweep says in MLflow: of itself, of its runs, and how to look at them."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pandas as pd
import pytest
from mlflow.entities import Experiment, ViewType
from mlflow.tracking import MlflowClient

from calibration.metrics import METRICS, Shown
from sweeps.analysis import Analysis
from sweeps.spec import ORACLE
from sweeps.tracking.mlflow.links import compared_runs, sweep_links, tracked_sweeps
from sweeps.tracking.mlflow.run_content import METRIC_NAMES
from sweeps.tracking.mlflow.sweep_content import table_json, winner_metrics
from sweeps.tracking.mlflow.views import LONGEST, views
from tests.sweeps.report.analyses import analysis, oracle, row
from tests.tracked import SPEC, empty_database, make_plan, runs_of, steps, synced, train_all

TWO_ROWS = SPEC.replace(
    "methods: {standard: {weight_decay: 0}}",
    "methods: {standard: {weight_decay: 0}, focal: {weight_decay: 0}}",
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "mlflow.db").write_bytes(empty_database())
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def analysed(winner: str = "focal") -> Analysis:
    """Two methods with two calibrators each; each method's temperature is the better of its two."""
    lines = [
        row(
            method,
            calibrator,
            dataset="blobs-1.7",
            seeds=2,
            winner=method == winner and calibrator == "temperature",
            chosen=calibrator == "temperature",
            ece=0.0123456789,
            nll=0.5,
            error=1 / 3,
        )
        for method in sorted(("standard", "focal"), key=lambda method: method != winner)
        for calibrator in ("temperature", "identity")
    ]
    found = analysis([*lines, oracle(dataset="blobs-1.7", seeds=2)])
    found.leaderboard["ece_sd"] = float("nan")
    return found


def leaderboard() -> pd.DataFrame:
    return analysed().leaderboard


def experiment(uri: str) -> Experiment:
    found = MlflowClient(uri).get_experiment_by_name("s")
    assert found is not None
    return found


def test_winners_metrics_are_named_by_their_dataset() -> None:
    assert winner_metrics(leaderboard()) == {
        "winner/ece/blobs-1.7": 0.0123456789,
        "winner/nll/blobs-1.7": 0.5,
        "winner/brier/blobs-1.7": 0.19,
        "winner/error/blobs-1.7": 1 / 3,
    }
    odd = leaderboard().assign(dataset="../my data (2)")
    reported = METRICS.names(Shown.LEADERBOARD)
    assert set(winner_metrics(odd)) == {f"winner/{n}/_my data _2_" for n in reported}


def test_the_table_is_json_of_numbers_that_can_be_read() -> None:
    table = json.loads(table_json(leaderboard()), parse_constant=pytest.fail)
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert len(rows) == 5
    assert (rows[0]["row"], rows[0]["winner"], rows[0]["ece"]) == ("focal", True, 0.01235)
    (oracle,) = (row for row in rows if row["row"] == ORACLE)
    assert oracle["validation/nll"] is None
    assert "ece_sd" not in table["columns"]


@pytest.mark.parametrize("through_client", [False, True])
def test_confirmed_runs_say_what_was_chosen(
    tmp_path: Path, uri: str, through_client: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if through_client:
        monkeypatch.setattr("sweeps.tracking.mlflow.publisher.Database.open", lambda uri: None)
    plan = make_plan(tmp_path, trials=1, text=TWO_ROWS)
    train_all(plan)
    for winner in ("focal", "standard", "standard"):
        synced(uri, plan, "words", analysed(winner))
        runs = runs_of(uri)
        for trial in plan.trials.values():
            tags = runs[trial.key].data.tags
            confirm = trial.config.phase == "confirm"
            assert tags.get("calsweep.calibrator") == ("temperature" if confirm else None)
            won = str(trial.row == winner).lower()
            assert tags.get("calsweep.winner") == (won if confirm else None)
            assert tags["row"] == f"{trial.row} · blobs-1.7"
            place = "1" if trial.row == winner else "2"
            assert tags.get("calsweep.place") == (place if confirm else None)
            assert tags.get("calsweep.test_nll") == ("0.5000" if confirm else None)
    colours = [
        {runs[e.key].data.tags["mlflow.runColor"] for e in plan.confirmed("blobs-1.7", row)}
        for row in ("standard", "focal")
    ]
    assert [len(found) for found in colours] == [1, 1]
    assert colours[0] != colours[1]


def test_a_colour_that_a_user_has_given_stays(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path, trials=1, text=TWO_ROWS)
    train_all(plan)
    synced(uri, plan, "words", analysed("focal"))
    key = plan.confirmed("blobs-1.7", "focal")[0].key
    MlflowClient(uri).set_tag(runs_of(uri)[key].info.run_id, "mlflow.runColor", "#123456")
    synced(uri, plan, "words", analysed("standard"))
    tags = runs_of(uri)[key].data.tags
    assert (tags["mlflow.runColor"], tags["calsweep.winner"]) == ("#123456", "false")


def test_a_row_left_out_is_superseded_until_it_comes_back(tmp_path: Path, uri: str) -> None:
    both = make_plan(tmp_path, trials=1, text=TWO_ROWS)
    train_all(both)
    synced(uri, both, "words")
    for text, left in ((SPEC, {"focal"}), (TWO_ROWS, set())):
        plan = make_plan(tmp_path, trials=1, text=text)
        synced(uri, plan, "words")
        runs = runs_of(uri)
        marked = {e.row for e in both.trials.values() if _superseded(runs[e.key].data.tags)}
        assert marked == left


def _superseded(tags: dict[str, str]) -> bool:
    return "calsweep.superseded" in tags


def test_the_sweeps_run_has_the_table_the_winners_and_what_was_asked(
    tmp_path: Path, uri: str
) -> None:
    plan = make_plan(tmp_path, trials=1, text=TWO_ROWS)
    train_all(plan)
    for _ in range(2):
        synced(uri, plan, "in *words*", analysed())
    parent = runs_of(uri)["s"]
    assert parent.data.metrics == winner_metrics(leaderboard())
    assert steps(uri, parent, "winner/ece/blobs-1.7") == [0]
    tags = parent.data.tags
    assert tags["mlflow.note.content"] == "in *words*"
    assert tags["calsweep.datasets"] == "blobs-1.7"
    assert tags["calsweep.methods"] == "standard, focal"
    assert (tags["calsweep.sampler"], tags["calsweep.seeds"]) == ("random", "2")
    assert json.loads(tags["mlflow.loggedArtifacts"]) == [
        {"path": "leaderboard.json", "type": "table"}
    ]
    run_id = parent.info.run_id
    path = MlflowClient(uri).download_artifacts(run_id, "leaderboard.json", str(tmp_path))
    assert Path(path).read_bytes() == table_json(leaderboard())


def test_views_are_saved_once_and_fit_into_their_tags(tmp_path: Path, uri: str) -> None:
    every = TWO_ROWS.replace("[temperature]", "fast")
    plan = make_plan(tmp_path, trials=1, text=every)
    assert len(plan.spec.calibrator_names) > 12
    found = []
    for _ in range(2):
        synced(uri, plan, "words")
        found.append(experiment(uri).tags)
    assert found[0] == found[1]
    saved = {view.name: found[0][view.tag] for view in views(plan)}
    assert list(saved) == ["s: results", "s: charts", "s: search"]
    for name, value in saved.items():
        assert len(value) <= LONGEST
        view = json.loads(value)
        assert view["name"] == name
        state = json.loads(view["state"])
        client = MlflowClient(uri)
        client.search_runs(  # raises if MLflow cannot read them
            [experiment(uri).experiment_id], state["searchFilter"], order_by=[state["orderByKey"]]
        )


def test_runs_with_metrics_called_otherwise_are_replaced_and_kept_in_the_trash(
    tmp_path: Path, uri: str
) -> None:
    plan = make_plan(tmp_path)
    trials = train_all(plan)
    assert synced(uri, plan, "words") == len(trials)
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        names = ("test/temperature/ece", "test/ece:temperature")
        for table in ("metrics", "latest_metrics"):
            database.execute(f"UPDATE {table} SET key = ? WHERE key = ?", names)
        database.execute(
            "UPDATE tags SET value = replace(value, ?, '') WHERE key = 'calsweep.published'",
            (f" {METRIC_NAMES}",),
        )
        database.commit()
    confirmed = plan.confirmed("blobs-1.7", "standard")
    old = {trial.key: runs_of(uri)[trial.key] for trial in confirmed}
    assert all("test/temperature/ece" in run.data.metrics for run in old.values())
    assert synced(uri, plan, "words") == len(confirmed)
    runs = runs_of(uri)  # fails if there are two of one trial
    assert len(runs) == len(trials) + 1
    for trial in confirmed:
        assert runs[trial.key].data.metrics["test/ece:temperature"] == 0.5
        assert "test/temperature/ece" not in runs[trial.key].data.metrics
    trash = MlflowClient(uri).search_runs(
        [experiment(uri).experiment_id], run_view_type=ViewType.DELETED_ONLY
    )
    assert {run.info.run_id for run in trash} == {run.info.run_id for run in old.values()}
    assert synced(uri, plan, "words") == 0


def test_the_compared_runs_are_the_first_seed_of_every_row_best_first(
    tmp_path: Path, uri: str
) -> None:
    plan = make_plan(tmp_path, trials=1, text=TWO_ROWS)
    train_all(plan)
    for number, method in enumerate(("standard", "focal")):
        for trial in plan.confirmed("blobs-1.7", method):
            record = plan.store.record(trial.key)
            found = plan.store.evaluations(record, "15-bins")["temperature"]
            found = found.model_copy(update={"validation": {"nll": 0.9 - 0.1 * number}})
            plan.store.write_evaluation(trial.key, "15-bins", "temperature", found)
    synced(uri, plan, "words", analysed())
    client = MlflowClient(uri)
    (sweep,) = tracked_sweeps(client).values()
    runs = runs_of(uri)
    first = {row: plan.confirmed("blobs-1.7", row)[0].key for row in ("focal", "standard")}
    expected = [runs[key].info.run_id for key in first.values()]
    assert compared_runs(client, sweep) == expected
    links = sweep_links(client, "http://host:1/", sweep)
    assert all(link.startswith("http://host:1/#/") for link in links.values())
    assert all(run_id in links["compare"] for run_id in expected)
    assert runs["s"].info.run_id in links["report"]


def test_a_sweep_without_views_is_found_by_its_filter(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    train_all(plan)
    synced(uri, plan, None)
    client = MlflowClient(uri)
    (sweep,) = tracked_sweeps(client).values()
    links = sweep_links(client, "http://host", sweep)
    assert "viewStateShareKey" not in links["results"]
    assert "searchFilter=tags" in links["results"]
    assert "compareRunsMode=CHART" in links["charts"]
