"""The winner as an MLflow model: the record's numbers, anywhere, by anyone, and a card."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch

from calibration import metrics
from calibration.deployment import Classifier
from calibration.evaluation import cross_fitted
from calibration.metrics import METRICS
from sweeps.export.bundling import REQUIRED
from sweeps.sweep import open_sweep
from tests.exported import Swept, described

pytestmark = pytest.mark.slow

# Loads a model where neither the repository nor an installed calsweep can be found.
ELSEWHERE = """
import importlib.util, json, sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in f"{f} {f.__module__}".lower()]
sys.path[:] = [p for p in sys.path if "editable" not in p and p != ROOT]
assert importlib.util.find_spec("sweeps") is None, sys.path
assert importlib.util.find_spec("own_model") is None
import mlflow, pandas
frame = pandas.read_json(ROWS, orient="split", dtype=False)
found = mlflow.pyfunc.load_model(MODEL).predict(frame)
import calibration
print(json.dumps({
    "confidence": found["confidence"].tolist(),
    "code": calibration.__file__,
    "loaded": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""

# MLflow decides when it is imported whether it reports usage.
REPORTS_NO_USAGE = """
import sys
from sweeps.cli.main import main
assert main(sys.argv[1:]) == 0
from mlflow.telemetry import get_telemetry_client
assert get_telemetry_client() is None
"""


def test_predictions_are_the_records_to_the_bit(swept: Swept, winner: Path) -> None:
    found = mlflow.pyfunc.load_model(str(winner)).predict(swept.test)
    assert list(found.columns) == ["class", "confidence", "probabilities", "abstain"]
    expected = swept.expected(winner)
    assert found["probabilities"].tolist() == expected.tolist()
    assert found["confidence"].tolist() == expected.amax(1).tolist()
    names = described(winner)["class_names"]
    assert names == ["mid", "old", "young"]
    assert found["class"].tolist() == [names[i] for i in expected.argmax(1)]


def test_the_winner_is_chosen_by_validation_data(swept: Swept, winner: Path) -> None:
    sweep = open_sweep("table", swept.store)
    tidy = sweep.results
    means = tidy.groupby(["row", "calibrator"])["validation/nll"].mean()
    ((method, chosen),) = sweep.analysis.selection.winners.values()
    region = METRICS["nll"].region
    assert region is not None
    assert means[method, chosen] <= means.min() + region  # the simplest within noise of the best
    of_row = tidy[(tidy["row"] == method) & (tidy["calibrator"] == chosen)]
    best = of_row.loc[of_row["validation/nll"].idxmin()]
    about = described(winner)["about"]
    assert (about["calibrator"], about["seed"], about["key"]) == (chosen, best["seed"], best["key"])
    assert about["row"].startswith(method)


def test_the_threshold_keeps_the_wanted_share_of_validation_rows(
    swept: Swept, winner: Path
) -> None:
    about, threshold = described(winner)["about"], described(winner)["threshold"]
    arrays = swept.store.predictions(swept.store.record(about["key"]))
    held_back = cross_fitted(
        about["calibrator"],
        arrays["validation_logits"],
        arrays["validation_labels"],
        seed=about["seed"],
    )
    share = (held_back.amax(1) >= threshold).double().mean().item()
    assert share == pytest.approx(0.8, abs=1 / len(held_back))
    found = mlflow.pyfunc.load_model(str(winner)).predict(swept.test)
    assert found["abstain"].tolist() == (found["confidence"] < threshold).tolist()
    assert 0 < found["abstain"].sum() < len(found)


def test_the_card_says_what_the_record_says(swept: Swept, winner: Path) -> None:
    text = (winner / "README.md").read_text()
    about = described(winner)["about"]
    labels = swept.store.predictions(swept.store.record(about["key"]))["test_labels"]
    probabilities = swept.expected(winner)
    ece = float(metrics.ece(probabilities, labels))
    recorded = swept.store.evaluations(swept.store.record(about["key"]), "15-bins")[
        about["calibrator"]
    ]
    assert ece == pytest.approx(recorded.test["ece"], abs=1e-12)
    low, high = recorded.intervals["ece"]
    assert f"| ECE | {ece:.4f} [{low:.4f}, {high:.4f}] |" in text
    assert f"| ECE's noise floor | {recorded.floor[0]:.4f}" in text
    kept = probabilities.amax(1) >= described(winner)["threshold"]
    right = (probabilities.argmax(1) == labels)[kept].double().mean()
    assert re.search(rf"\| test \| 300 \| {kept.double().mean():.4f} \[.*\| {right:.4f} \[", text)
    for words in (
        about["fingerprint"],
        about["key"],
        " training, 75 validation, 300 test",
        "lr = 0.03",
        "On validation data only",
        "What it is not good for",
        "mlflow models serve",
        f"torch = {about['environment']['torch']}",
    ):
        assert words in text


def test_it_works_where_calsweep_and_the_data_are_not(swept: Swept, tmp_path: Path) -> None:
    """A method with a calibrator of its own, a network and a calibrator of the user's own files."""
    model = tmp_path / "model"
    assert swept.export("table", model, "--row", "joint + own_model:Halve", "--seed", "2") == 0
    bundled = {path.name for path in (model / "code").iterdir()}
    assert bundled == {"calibration", "own_model.py", "own_parts.py"}
    files = [swept.directory / name for name in ("rows.csv", "own_model.py", "own_parts.py")]
    kept = {path: path.read_bytes() for path in files}
    rows = tmp_path / "rows.json"
    swept.test.to_json(rows, orient="split")
    root = str(Path(__file__).parents[3])
    values = f"ROOT, MODEL, ROWS = {root!r}, {str(model)!r}, {str(rows)!r}\n"
    for path in files:
        path.unlink()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", values + ELSEWHERE],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    finally:
        for path, content in kept.items():
            path.write_bytes(content)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["confidence"] == swept.expected(model).amax(1).tolist()
    assert found["code"].startswith(str(model / "code"))
    assert {"own_model", "own_parts", "torch"} <= set(found["loaded"])
    assert not {"ray", "optuna", "sweeps", "torchopt", "sklearn"} & set(found["loaded"])


def test_it_names_its_packages_and_no_path_of_this_machine(swept: Swept, winner: Path) -> None:
    pinned = (winner / "requirements.txt").read_text().split()
    assert [line.partition("==")[0] for line in pinned] == list(REQUIRED)
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in pinned)
    for name in ("MLmodel", "artifacts/model.json", "input_example.json"):
        text = (winner / name).read_text()
        assert str(swept.directory) not in text
        assert str(Path(__file__).parents[3]) not in text
    assert not list(winner.rglob("*.pkl"))


def test_values_missing_and_never_seen_are_treated_as_in_training(
    swept: Swept, winner: Path
) -> None:
    model = mlflow.pyfunc.load_model(str(winner))
    full = swept.test.head(4)
    none = model.predict(full.assign(income=np.nan))
    without = model.predict(full.drop(columns="income"))
    assert without["confidence"].tolist() == none["confidence"].tolist()
    raw = (
        open_sweep("table", swept.store)
        .loaded.datasets["rows"]
        .encode(full.assign(city=["Paris", None, "Ulm", "Ulm"], member=[True, False, True, True]))
    )
    by_hand = Classifier.load(winner / "artifacts").predict_raw(raw).confidence
    # As texts and objects, in another order, under another index.
    mixed = pd.DataFrame(
        {
            "member": [True, False, 1, "1"],
            "city": ["Paris", None, "Ulm", "Ulm"],
            "age": full["age"].astype(str).tolist(),
            "income": full["income"].tolist(),
        },
        index=[9, 8, 7, 6],
    )
    found = model.predict(mixed)
    assert found["confidence"].tolist() == by_hand.tolist()
    assert list(found.index) == [9, 8, 7, 6]
    with pytest.raises(mlflow.exceptions.MlflowException, match="age"):
        model.predict(full.drop(columns="age"))
    with pytest.raises(ValueError, match="'age' should hold numbers, found 'ten'"):
        model.predict(full.assign(age="ten"))


def test_a_map_of_the_top_label_gives_confidences_alone(swept: Swept, tmp_path: Path) -> None:
    out = tmp_path / "new" / "model"
    assert swept.export("table", out, "--row", "standard+isotonic_top_label") == 0
    found = mlflow.pyfunc.load_model(str(out)).predict(swept.test)
    assert found["confidence"].tolist() == swept.expected(out).tolist()
    assert found["probabilities"].isna().all()
    assert not found["abstain"].any()
    text = (out / "README.md").read_text()
    assert "By hand" in text
    assert "it never abstains" in text
    about = described(out)["about"]
    logits = swept.store.predictions(swept.store.record(about["key"]))["test_logits"]
    names = described(out)["class_names"]
    assert found["class"].tolist() == [names[i] for i in logits.argmax(1)]


def test_a_prior_corrects_what_is_predicted_and_no_test_figure(
    swept: Swept, winner: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    assert swept.export("table", out, "--row", "standard + temperature", "--prior", "old=0.6") == 0
    assert "test figures are those" in capsys.readouterr().out
    labels = swept.store.predictions(swept.store.record(described(out)["about"]["key"]))
    shares = torch.bincount(labels["validation_labels"]).double()
    shares /= shares.sum()
    others = 0.4 * shares / (shares[0] + shares[2])
    deployed = torch.tensor([others[0], 0.6, others[2]], dtype=torch.float64)  # mid, old, young
    weighted = swept.expected(out) * (deployed / shares)
    expected = weighted / weighted.sum(1, keepdim=True)
    found = mlflow.pyfunc.load_model(str(out)).predict(swept.test)
    assert torch.allclose(
        torch.tensor(found["probabilities"].tolist(), dtype=torch.float64), expected, atol=1e-6
    )
    card = (out / "README.md").read_text()
    assert "| `old` |" in card.split("## Deployment prior")[1]
    assert "results above are those before this correction" in card
    assert "Deployment prior" not in (winner / "README.md").read_text()


@pytest.mark.parametrize("dataset", ["digits", "blobs-1.7"])
def test_images_and_points_are_arrays(swept: Swept, dataset: str, tmp_path: Path) -> None:
    out = tmp_path / "model"
    out.mkdir()
    assert swept.export("several", out, "--dataset", dataset) == 0
    about = described(out)["about"]
    test = open_sweep("several", swept.store).loaded.datasets[dataset].test(about["seed"])
    model = mlflow.pyfunc.load_model(str(out))
    found = model.predict(test.inputs.numpy())
    assert found["probabilities"].tolist() == swept.expected(out).tolist()
    if dataset == "blobs-1.7":
        frame = pd.DataFrame(test.inputs.numpy(), columns=["east", "north"])
        assert model.predict(frame)["confidence"].tolist() == found["confidence"].tolist()
        whole = model.predict(pd.DataFrame({"east": [1, 2], "north": [3, 4]}))
        assert len(whole) == 2
    with pytest.raises((ValueError, mlflow.exceptions.MlflowException), match="shape"):
        Classifier.load(out / "artifacts").predict(np.zeros((2, 7)))
    assert len(Classifier.load(out / "artifacts").predict(test.inputs[:0].numpy())) == 0


def test_threads_do_not_disturb_each_other(swept: Swept, winner: Path) -> None:
    classifier = Classifier.load(winner / "artifacts")
    expected = classifier.predict(swept.test)["confidence"].tolist()
    wrong: list[object] = []

    def work() -> None:
        for _ in range(20):
            try:
                if classifier.predict(swept.test)["confidence"].tolist() != expected:
                    wrong.append("other numbers")
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_exporting_reports_no_usage_to_mlflow(swept: Swept, tmp_path: Path) -> None:
    store, out = swept.directory / "runs", tmp_path / "model"
    command = ["export", "table", "--store", str(store), "--out", str(out)]
    # By other variables MLflow recognises tests and continuous integration, and is silent there.
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", REPORTS_NO_USAGE, *command],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
