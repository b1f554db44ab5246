"""A sweep over rows with weights, from the spec to the verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from sweeps.errors import UserError
from sweeps.export.choice import choose
from sweeps.export.package import Wish, assemble
from sweeps.report.terminal import print_leaderboard
from sweeps.spec import load_spec
from sweeps.spec.reading import SpecError
from tests.trained import train_sweep

SPEC = """\
name: weighted
datasets: [{name: table, path: t.csv, target: y, weight: w}]
model: {name: mlp, widths: [4]}
methods:
  standard: {lr: 0.05, weight_decay: 0}
  linear: {method: logistic_regression, C: 1.0}
training: {epochs: 3, batch_size: full}
search: {sampler: random, trials: 1}
confirm_seeds: 3
calibrators: [temperature, venn_abers]
protocol: nested
"""


def write(folder: Path, *, scale: float = 1.0, spoil: bool = False) -> None:
    """A third of the rows does not count; ``spoil`` gives these other labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    inputs = labels + rng.normal(size=400)
    # In 64ths: pandas 2 reads numbers of more digits from CSV one unit in the last place off.
    counts = 1 + np.round(64 * rng.random(400)) / 64
    weights = np.where(np.arange(400) % 3 == 0, 0.0, counts)
    told = np.where((weights == 0) & spoil, 1 - labels, labels)
    frame = pd.DataFrame({"x": inputs, "w": scale * weights, "y": told})
    frame.to_csv(folder / "t.csv", index=False)


def test_weights_reach_training_metrics_and_verdicts(tmp_path: Path) -> None:
    alone = SPEC.replace("  standard: {lr: 0.05, weight_decay: 0}\n", "")
    found = []
    for scale, text in ((1.0, SPEC), (8.0, alone)):
        folder = tmp_path / str(scale)
        folder.mkdir()
        write(folder, scale=scale)
        found.append(train_sweep(folder, text))
    sweep = found[0]
    for row in ("standard", "linear"):
        for trial in sweep.records.confirmed("t", row):
            assert trial.done is not None
            arrays = sweep.store.predictions(trial.done)
            assert not any(evaluation.failed for evaluation in trial.evaluations.values())
            weights, labels = arrays["test_weights"], arrays["test_labels"]
            losses = torch.nn.functional.cross_entropy(
                arrays["test_logits"].double(), labels, reduction="none"
            )
            expected = float(weights @ losses / weights.sum())
            measured = trial.evaluations["identity"].test["nll"]
            assert measured == pytest.approx(expected, rel=1e-6)
            scores = sweep.records.row_scores(trial, "identity")
            assert scores is not None
            assert float(torch.as_tensor(scores.of("nll")).mean()) == pytest.approx(expected)
    compared = sweep.analysis.comparisons.query("metric == 'nll' and row == 'linear'")
    assert set(compared["pairs"]) == {3}
    assert compared["p"].notna().any()
    # Eight times the weight is the same weight, to the bit; its keys are others.
    one, other = (
        [
            evaluation.model_dump(include={"test", "validation", "floor"})
            for trial in each.records.confirmed("t", "linear")
            for evaluation in trial.evaluations.values()
        ]
        for each in found
    )
    assert one == other
    chosen = choose(sweep.records, sweep.analysis, None, "linear", None)
    assert assemble(sweep.loaded, sweep.store, chosen, Wish()).chosen.row is not None
    with pytest.raises(UserError, match="'t' count by their weights; leave it out"):
        assemble(sweep.loaded, sweep.store, chosen, Wish(coverage=0.5))
    console = Console(width=200)
    with console.capture() as captured:
        print_leaderboard(sweep.analysis, sweep.records, console)
    said = " ".join(captured.get().split())
    assert "Rows count by their weights" in said
    assert "AURC" in said.partition("Unweighted")[2]
    assert "venn_abers" in said.partition("Unweighted")[2]


def test_who_takes_no_weights_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "s.yaml"
    row = "neighbours: {method: 'sklearn.neighbors:KNeighborsClassifier', n_neighbors: 5}"
    path.write_text(SPEC.replace("linear: {method: logistic_regression, C: 1.0}", row))
    with pytest.raises(SpecError, match=r"neighbours: .*not support row weights.*'t' has them"):
        load_spec(path)
