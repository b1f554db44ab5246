"""Where neither the learner nor the parts depend on the seed, one confirm trial is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeps.engine.plan import Plan
from sweeps.spec import load_spec
from sweeps.store import Store
from tests.trained import train_sweep

SPEC = """\
name: fixed
datasets: [{name: table, path: t.csv, target: y, ROLE}]
model: {name: mlp, widths: [4]}
methods:
  linear: {method: logistic_regression, C: 1.0}
  weaker: {method: logistic_regression, C: 0.001}
  forest: {method: random_forest, n_estimators: 5}
search: {sampler: random, trials: 1}
confirm_seeds: 3
calibrators: [temperature]
protocol: PROTOCOL
"""


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 600)
    frame = pd.DataFrame({"x": labels + rng.normal(size=600), "y": labels})
    parts = np.array(["train", "train", "validation", "test"])[np.arange(600) % 4]
    frame.assign(part=parts, day=np.arange(600) // 6).to_csv(folder / "t.csv", index=False)


@pytest.mark.parametrize(
    ("role", "protocol", "once"),
    [
        ("fold: part, drop: [day]", "nested", True),
        ("time: day, drop: [part]", "nested", True),
        ("drop: [day, part]", "nested", False),
        # Rows that are held out from everybody are drawn by seed.
        ("fold: part, drop: [day]", "meta_regularization", False),
    ],
)
def test_who_is_confirmed_once(tmp_path: Path, role: str, protocol: str, once: bool) -> None:
    write(tmp_path)
    path = tmp_path / "s.yaml"
    path.write_text(SPEC.replace("ROLE", role).replace("PROTOCOL", protocol))
    plan = Plan(load_spec(path), Store(tmp_path / "runs"))
    make = plan._make
    for row, deterministic in (("linear", True), ("forest", False)):
        cell = plan.cells["t", row]
        trials = [make.confirm_trial(cell, cell.study.space.fixed, n) for n in range(3)]
        assert [trial.config.seed for trial in trials] == [1, 2, 3]
        assert len({trial.key for trial in trials}) == (1 if once and deterministic else 3)


def test_one_training_stands_for_every_seed(tmp_path: Path) -> None:
    write(tmp_path)
    text = SPEC.replace("ROLE", "fold: part, drop: [day]").replace("PROTOCOL", "nested")
    sweep = train_sweep(tmp_path, text)
    trained = {
        trial.key for row in ("linear", "weaker") for trial in sweep.records.confirmed("t", row)
    }
    assert len(trained) == 2
    assert sweep.records.done == sweep.records.total
    table = sweep.analysis.leaderboard.query("row == 'linear' and calibrator == 'identity'")
    assert table["seeds"].tolist() == [3]
    assert table["nll_sd"].tolist() == [0.0]
    compared = sweep.analysis.comparisons.query(
        "metric == 'nll' and row == 'weaker' and calibrator == 'identity'"
    )
    # Seeds that agree to the bit are no evidence of their own: what is uncertain are the rows.
    difference, low, high = (float(compared.iloc[0][c]) for c in ("difference", "low", "high"))
    scores = [
        sweep.records.row_scores(sweep.records.confirmed("t", row)[0], "identity")
        for row in ("weaker", "linear")
    ]
    rows = [None if each is None else each.of("nll") for each in scores]
    assert rows[0] is not None
    assert rows[1] is not None
    expected = rows[0] - rows[1]
    half = 1.96 * float(expected.std()) / len(expected) ** 0.5
    assert abs(difference) == pytest.approx(abs(float(expected.mean())), rel=1e-4)
    assert (high - low) / 2 == pytest.approx(half, rel=0.03)
