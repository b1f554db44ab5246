"""Specs that repeat published tables: rows with their own training, tables, larger test draws."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from calibration import metrics
from calibration.data import load_dataset
from calibration.methods import bo4sc
from calibration.methods.standard import Standard
from calibration.objectives import confidence_bce
from sweeps.cli.main import main
from sweeps.engine.cell import Cells
from sweeps.engine.dry_run import try_rows
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import load_network
from sweeps.engine.plan import Options, Plan
from sweeps.spec import SpecError, load_spec
from sweeps.specs import SPECS
from sweeps.store import Store
from tests.tracked import empty_database
from tests.trained import finish

SPEC = """\
name: table
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
protocol: bo4sc
training: {epochs: 30, batch_size: full, stop_on: none, evaluate_every: 5}
methods:
  last: {method: standard, lr: 0.05, weight_decay: 0.0}
  best: {method: standard, training: {stop_on: nll, epochs: 40}, lr: 0.05, weight_decay: 0.0}
  BO4SC: {method: bo4sc, lr: 0.05, weight_decay: 0.0, inner_steps: [1, 5], outer_lr: 5.0,
          sharpness: 30.0}
search: {sampler: grid}
confirm_seeds: 2
calibrators: [temperature, isotonic_top_label]
large_test: 2000
table:
  title: A table
  metrics: [ece, accuracy, large_ece, true_ce]
  rows:
    Plain: last
    Isotonic: last + isotonic_top_label
    Bilevel: BO4SC
    Best possible: oracle
  published:
    blobs-1.7:
      Plain: {ece: 0.074, accuracy: 0.876}
      Bilevel: {ece: 0.001}
  quoted: {blobs-1.7: {Somebody 2020: {ece: 0.0123}}}
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Trained in this process; the command finds all trials done, and reports and publishes."""
    directory = tmp_path_factory.mktemp("table")
    (directory / "table.yaml").write_text(SPEC)
    finish(directory / "table.yaml", Store(directory / "runs"))
    (directory / "runs" / "mlflow.db").write_bytes(empty_database())
    done = subprocess.run(
        [sys.executable, "-m", "sweeps.cli", "run", "table.yaml"],
        cwd=directory,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory, done.stdout


def records(directory: Path) -> list[dict[str, Any]]:
    files = (directory / "runs" / "records").glob("*/record.json")
    return [json.loads(path.read_text()) for path in files]


@pytest.mark.slow
def test_rows_without_anything_to_search_are_only_confirmed(swept: tuple[Path, str]) -> None:
    phases = [(r["config"]["method"], r["config"]["phase"]) for r in records(swept[0])]
    assert phases.count(("standard", "search")) == 0
    assert phases.count(("standard", "confirm")) == 4
    assert phases.count(("bo4sc", "search")) == 2
    assert phases.count(("bo4sc", "confirm")) == 2


@pytest.mark.slow
def test_rows_train_by_their_own_settings(swept: tuple[Path, str]) -> None:
    epochs = {
        (r["config"]["training"]["stop_on"], r["epochs"])
        for r in records(swept[0])
        if r["config"]["method"] == "standard"
    }
    assert epochs == {("none", 30), ("nll", 40)}


@pytest.mark.slow
def test_the_table_is_printed_and_written(swept: tuple[Path, str]) -> None:
    directory, printed = swept
    lines = pd.read_csv(directory / "runs" / "table" / "table.csv")
    assert list(lines["row"].unique()) == [
        *("Plain", "Isotonic", "Bilevel", "Best possible"),
        "Somebody 2020",
    ]
    tidy = pd.read_csv(directory / "runs" / "table" / "results.csv")
    plain = tidy[(tidy["row"] == "last") & (tidy["calibrator"] == "identity")]
    cell = lines[(lines["row"] == "Plain") & (lines["metric"] == "accuracy")].iloc[0]
    assert cell["mean"] == pytest.approx(1 - plain["error"].mean())
    assert cell["sd"] == pytest.approx(plain["error"].std(ddof=1))
    assert (cell["seeds"], cell["published"]) == (2, 0.876)
    assert "[0.876]" in printed
    assert all(name in printed for name in ("Plain ", "Isotonic ", "Bilevel ", "Best possible "))
    assert "A table · blobs-1.7" in printed
    markdown = (directory / "runs" / "table" / "table.md").read_text()
    assert "| Somebody 2020 (quoted) | [0.012] | – | – | – |" in markdown
    assert "[0.876]" in markdown
    html = (directory / "runs" / "table" / "report.html").read_text()
    assert "[0.876]" in html
    assert "<td>Bilevel</td>" in html
    figures = list((directory / "runs" / "table" / "figures").glob("*.png"))
    assert len(figures) > 4
    assert "blobs-1.7_reliability-by-bins.png" in {figure.name for figure in figures}
    assert "data:image/webp" in html
    # Chance alone gives the true posterior more than 0.001, so such an ECE says nothing.
    assert "[0.001≈]" in printed
    assert "[0.074≈]" not in printed


@pytest.mark.slow
def test_larger_draws_are_measured_on_the_stored_network(swept: tuple[Path, str]) -> None:
    directory, _ = swept
    store = Store(directory / "runs")
    plan = Plan(load_spec(directory / "table.yaml"), store, Options(persist=False))
    plan.replay()
    (first, _) = plan.confirmed("blobs-1.7", "BO4SC")
    rows = load_dataset("blobs-1.7", {}).large_test(first.config.seed, 2000)
    assert rows is not None
    assert len(rows.labels) == 2000
    probabilities = (
        load_network(first.config, store.record(first.key), store)
        .predict(rows)
        .double()
        .softmax(-1)
    )
    tidy = pd.read_csv(directory / "runs" / "table" / "results.csv")
    line = tidy[(tidy["key"] == first.key) & (tidy["calibrator"] == "identity")].iloc[0]
    assert line["large_ece"] == pytest.approx(float(metrics.ece(probabilities, rows.labels)))
    assert line["large_posterior_gap"] > 0
    oracle = tidy[tidy["row"] == "oracle (true posterior)"]
    assert bool((oracle["large_posterior_gap"] < 1e-9).all())


@pytest.mark.slow
def test_weights_and_curves_are_drawn_and_the_weights_published(swept: tuple[Path, str]) -> None:
    directory, _ = swept
    figures = {path.name for path in (directory / "runs" / "table" / "figures").glob("*.png")}
    assert {"blobs-1.7_BO4SC-weights.png", "blobs-1.7_ece-curve.png"} <= figures
    histories = list((directory / "runs" / "records").glob("*/*/history.npz"))
    assert len(histories) == 2
    with np.load(histories[0]) as history:
        assert history["weights"].shape[1] == 700
    assert len(list((directory / "runs" / "mlartifacts").rglob("history.npz"))) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("rows:\n    Plain: last", "rows:\n    Plain: lost"), ["table.rows.Plain", "'lost'"]),
        (("last + isotonic_top_label", "last + isotonic"), ["table.rows.Isotonic", "calibrators"]),
        (("metrics: [ece,", "metrics: [ecce,"), ["table.metrics.0", "unknown metric"]),
        (("{stop_on: nll, epochs", "{stop_on: nil, epochs"), ["methods.best.training", "stop_on"]),
        (("{method: bo4sc", "{method: bo4cs"), ["methods.BO4SC", "did you mean 'bo4sc'"]),
        (("inner_steps: [1, 5]", "inner_steps: [1, 0]"), ["methods.BO4SC.inner_steps", "0"]),
        (("  last: {", "  oracle: {"), ["methods.oracle", "must not be called"]),
        (("  last: {", "  a + b: {"), ["methods.a + b", "joins rows and calibrators"]),
        (
            ("  best: {", "  a?: {method: standard}\n  a!: {"),
            ["files would have the names of those of 'a?'"],
        ),
        (("  last: {", "  '': {"), ["letters or digits"]),
        (("  last: {", "  1.0: {"), ["methods.1.0", "in quotes"]),
        (("Bilevel: {ece: 0.001}", "Bilvel: {ece: 0.001}"), ["published", "'Bilvel'", "Bilevel"]),
        (("Bilevel: {ece: 0.001}", "Bilevel: {nll: 0.1}"), ["published", "'nll'", "large_ece"]),
        (("2020: {ece: 0.0123}", "2020: {nll: 0.1}"), ["quoted", "'nll'", "large_ece"]),
        (("Somebody 2020: {ece", "Plain: {ece"), ["quoted", "'Plain'", "under 'published'"]),
        (("large_test: 2000", "large_test: 0"), ["large_test", "large_ece"]),
        (("Best possible: oracle", "Best possible: oracle + temperature"), ["table.rows"]),
        (("{stop_on: nll, epochs: 40}", "{augmentation: crop_flip}"), ["methods.best.training"]),
    ],
)
def test_mistakes_in_rows_and_tables_are_named(
    tmp_path: Path, change: tuple[str, str], words: list[str]
) -> None:
    path = tmp_path / "bad.yaml"
    assert change[0] in SPEC
    path.write_text(SPEC.replace(*change))
    with pytest.raises(SpecError) as error:
        load_spec(path)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_an_absent_dataset_gives_way_to_its_substitute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSWEEP_DATA", str(tmp_path))
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: substitute\ndatasets: [{name: cifar10, train_rows: 50, otherwise: digits}]\n"
        "methods: [standard]\n"
    )
    loaded = load_spec(path)
    assert list(loaded.datasets) == ["digits"]
    assert loaded.notes == ["cifar10 is not on this machine; digits takes its place"]
    path.write_text("name: s\ndatasets: [{name: cifar10, otherwise: 3}]\nmethods: [standard]\n")
    with pytest.raises(SpecError, match=r"datasets\.0\.otherwise: found 3"):
        load_spec(path)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "tiny_imagenet"])
def test_every_row_of_the_full_tables_trains(
    dataset: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_cifar: Callable[..., Any],
    write_tiny_imagenet: Callable[..., Any],
) -> None:
    """Each row of the paper's setting, shortened to a few small batches of a made-up archive."""
    if dataset == "tiny_imagenet":
        write_tiny_imagenet(tmp_path)
    else:
        write_cifar(tmp_path, "binary", fine=dataset == "cifar100")
    monkeypatch.setenv("CALSWEEP_DATA", str(tmp_path))
    written = yaml.safe_load((SPECS / f"meta_regularization_{dataset}.yaml").read_text())
    assert len(written["table"]["rows"]) == (10 if dataset == "tiny_imagenet" else 13)
    assert written["table"]["published"][dataset].keys() == written["table"]["rows"].keys()
    written["training"]["batch_size"] = 4
    monkeypatch.setattr("sweeps.engine.dry_run._BATCHES", 1)
    if dataset != "cifar10":  # the network has been tried; on these the rows and data count
        written["model"] = {"name": "small_cnn", "channels": [4, 8]}
    short = tmp_path / "short.yaml"
    short.write_text(yaml.safe_dump(written))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is not the official")
        loaded = load_spec(short)
    plan = Plan(loaded, Store(tmp_path / "runs"), Options(persist=False))
    assert all(not cell.study.space.searched for cell in plan.cells.values())
    config = Cells(loaded).config(dataset, "FLγ-SECE", {}, 1, "confirm")
    assert (config.training.epochs, config.training.schedule) == (350, "step")
    factors = [config.training.lr_factor(epoch) for epoch in (0, 149, 150, 249, 250, 349)]
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    tried = list(try_rows(loaded))
    assert [t.failure for t in tried] == [""] * len(written["methods"])


def test_a_dry_run_finds_what_would_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: s\ndatasets: [blobs-1.7]\nmodel: {name: mlp, widths: [4]}\n"
        "methods: [standard, 'tests.sweeps.report.test_tables:Broken']\n"
        "calibrators: [temperature]\n"
    )
    before = torch.get_num_threads()
    assert main(["check", str(path), "--try", "--store", str(tmp_path / "runs")]) == 1
    printed = capsys.readouterr().out
    assert "standard: loss" in printed
    assert "Broken: RuntimeError: as planned" in printed
    assert not (tmp_path / "runs").exists()
    assert torch.get_num_threads() == before


def test_a_dry_run_warns_of_side_variables_that_explode_or_stand_still(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: s\ndatasets: [blobs-1.7]\nmodel: {name: mlp, widths: [64]}\n"
        "training: {epochs: 50, batch_size: 64, optimiser: sgd}\ncalibrators: [temperature]\n"
        "methods:\n"
        "  explodes: {method: fl_gamma_sece, parametrisation: paper, tau: 0.01, weight_lr: 0.01}\n"
        "  frozen: {method: fl_gamma_sece, outer_lr: 1.0e-6}\n"
        "  fine: {method: fl_gamma_sece, outer_lr: 0.03}\n"
    )
    assert main(["check", str(path), "--try", "--store", str(tmp_path / "runs")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(r"explodes: warning: gamma_mean goes from 1 to \S+ within 6 steps", printed)
    assert "would explode; lower weight_lr (now 0.01)" in printed
    assert "frozen: warning: gamma_mean is frozen at 1" in printed
    assert "raise outer_lr (now 1e-06)" in printed
    assert "fine: loss" in printed
    assert "fine: warning" not in printed


def test_configurations_of_equal_rows_share_a_key(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: s\ndatasets: [blobs-1.7]\nmethods:\n"
        "  a: {method: standard, lr: 0.1, weight_decay: 0.0}\n"
        "  b: {method: standard, lr: 0.1, weight_decay: 0.0, training: {epochs: 100}}\n"
        "  c: {method: standard, lr: 0.1, weight_decay: 0.0, training: {epochs: 99}}\n"
    )
    plan = Plan(load_spec(path), Store(tmp_path / "runs"), Options(persist=False))
    keys = {row: plan.confirmed("blobs-1.7", row)[0].key for row in "abc"}
    assert keys["a"] == keys["b"] != keys["c"]
    assert isinstance(plan.confirmed("blobs-1.7", "a")[0].config, TrialConfig)


class Broken(Standard):
    def loss(self, *_: object) -> torch.Tensor:  # type: ignore[override]
        raise RuntimeError("as planned")


@pytest.mark.parametrize("batch_size", ["full", 64])
def test_a_dry_run_goes_beyond_the_warm_up(
    batch_size: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def watched(*arguments: Any, **options: Any) -> torch.Tensor:
        calls.append(arguments)
        return confidence_bce(*arguments, **options)

    monkeypatch.setattr(bo4sc, "confidence_bce", watched)
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: s\ndatasets: [blobs-1.7]\nmodel: {name: mlp, widths: [4]}\nmethods: [bo4sc]\n"
        f"training: {{batch_size: {batch_size}}}\ncalibrators: [temperature]\n"
    )
    assert [tried.failure for tried in try_rows(load_spec(path))] == [""]
    assert calls, "the outer problem was never tried"
