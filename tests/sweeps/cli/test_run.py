"""Real sweeps through the command: Ray, Optuna, MLflow, records and leaderboard."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

pytestmark = pytest.mark.slow

SEARCH, CONFIRM = 3 + 3, 2 * 2


def records(directory: Path) -> dict[str, dict]:
    files = (directory / "runs" / "records").glob("*/record.json")
    return {path.parent.name: json.loads(path.read_text()) for path in files}


def tracked_runs(directory: Path) -> list:
    client = MlflowClient(f"sqlite:///{directory / 'runs' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    return list(client.search_runs([experiment.experiment_id], max_results=1000))


def test_every_trial_has_one_complete_record(swept: tuple[Path, str]) -> None:
    found = records(swept[0])
    phases = [r["config"]["phase"] for r in found.values()]
    # Focal's two choices of γ leave its third suggestion a repetition that costs nothing.
    assert phases.count("search") in (SEARCH, SEARCH - 1)
    assert phases.count("confirm") == CONFIRM
    for record in found.values():
        assert record["status"] == "done"
        assert [row["epoch"] for row in record["curve"]] == list(range(1, 13))
        assert {"python", "torch", "ray", "git"} <= record["environment"].keys()
        assert record["config"]["fingerprint"]


def test_test_data_is_read_in_the_confirm_phase_only(swept: tuple[Path, str]) -> None:
    import numpy as np

    for key, record in records(swept[0]).items():
        (stored,) = (swept[0] / "runs" / "records" / key).glob("*/predictions.npz")
        with np.load(stored) as arrays:
            has_test = any(name.startswith("test") for name in arrays.files)
        assert has_test == (record["config"]["phase"] == "confirm")


def test_the_confirmed_setting_is_the_best_on_validation(swept: tuple[Path, str]) -> None:
    for method in ("standard", "focal"):
        chosen = [r for r in records(swept[0]).values() if r["config"]["method"] == method]
        search = [r for r in chosen if r["config"]["phase"] == "search"]
        best = min(search, key=lambda r: r["validation"]["nll"])
        confirmed = [r for r in chosen if r["config"]["phase"] == "confirm"]
        assert [r["config"]["hyperparameters"] for r in confirmed] == [
            best["config"]["hyperparameters"]
        ] * 2
        assert {r["config"]["seed"] for r in confirmed} == {1, 2}


def test_the_leaderboard_has_every_method_and_map(swept: tuple[Path, str]) -> None:
    table = pd.read_csv(swept[0] / "runs" / "tiny" / "leaderboard.csv")
    trained = table[table["validation/error"].notna() | table["validation/ece"].notna()]
    rows = set(zip(trained["row"], trained["calibrator"], strict=True))
    assert rows == {
        (method, name)
        for method in ("standard", "focal")
        for name in ("identity", "temperature", "isotonic_top_label")
    }
    assert (table["seeds"] == 2).all()
    assert table["winner"].sum() == 1
    winner = table[table["winner"]].iloc[0]
    assert winner["validation/nll"] == table["validation/nll"].min()
    assert table.filter(like="oracle").empty
    assert table["row"].str.startswith("oracle").sum() == 1


def test_the_numbers_in_the_table_are_those_of_the_stored_predictions(
    swept: tuple[Path, str],
) -> None:
    import numpy as np
    from sklearn.metrics import log_loss

    tidy = pd.read_csv(swept[0] / "runs" / "tiny" / "results.csv")
    plain = tidy[(tidy["calibrator"] == "identity") & tidy["key"].notna()]
    assert len(plain) == CONFIRM
    for _, row in plain.iterrows():
        (stored,) = (swept[0] / "runs" / "records" / row["key"]).glob("*/predictions.npz")
        with np.load(stored) as arrays:
            logits = arrays["test_logits"].astype(np.float64)
            labels = arrays["test_labels"]
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        probabilities = shifted / shifted.sum(1, keepdims=True)
        assert row["nll"] == pytest.approx(log_loss(labels, probabilities), rel=1e-6)
        assert row["error"] == pytest.approx((probabilities.argmax(1) != labels).mean(), rel=1e-6)


def test_mlflow_has_one_finished_run_per_trial_under_one_parent(swept: tuple[Path, str]) -> None:
    runs = tracked_runs(swept[0])
    assert all(run.info.status == "FINISHED" for run in runs)
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(parents) == 1
    children = [run for run in runs if run not in parents]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parents[0].info.run_id}
    assert {run.data.tags["calsweep.key"] for run in children} == set(records(swept[0]))
    assert len(children) == len(records(swept[0]))


def test_mlflow_has_the_curves_parameters_and_figures(swept: tuple[Path, str]) -> None:
    client = MlflowClient(f"sqlite:///{swept[0] / 'runs' / 'mlflow.db'}")
    stored = records(swept[0])
    for run in tracked_runs(swept[0]):
        record = stored.get(run.data.tags["calsweep.key"])
        if record is None:
            continue
        history = client.get_metric_history(run.info.run_id, "validation/ece")
        assert [m.step for m in history] == [3, 6, 9, 12]
        assert run.data.params["lr"] == str(record["config"]["hyperparameters"]["lr"])
        artifacts = {file.path for file in client.list_artifacts(run.info.run_id)}
        assert "record.json" in artifacts
        if record["config"]["phase"] == "confirm":
            assert {"reliability.png", "predictions.parquet"} <= artifacts
            assert "test/ece" in run.data.metrics
            assert "test/nll:temperature" in run.data.metrics


def test_the_command_says_what_it_did_and_where_to_look(swept: tuple[Path, str]) -> None:
    directory, printed = swept
    for word in ("standard", "focal", "oracle", "runs/tiny/report.html", "calsweep ui"):
        assert word in printed
    assert (directory / "runs" / "tiny" / "report.html").read_text().count('class="plot"') >= 3
    assert len(list((directory / "runs" / "tiny" / "figures").glob("*.png"))) >= 3


def test_the_profile_has_the_seconds_of_both_sides(swept: tuple[Path, str]) -> None:
    """Some stages are the workers', some the driver's, and both import."""
    table = swept[1].partition("workers, added up")[2]
    lines = [re.split(r"  +", line.strip()) for line in table.splitlines()]
    found = {name: [float(value) for value in values] for name, *values in lines[1:] if values}
    assert {"train", "evaluate", "suggest", "Ray start", "publish", "report"} <= found.keys()
    assert len(found["imports"]) == 2
    assert found["train"][0] > 0
