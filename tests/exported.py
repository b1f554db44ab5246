"""Finished sweeps to export from, run in this process, and what their records say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from calibration import calibrators
from sweeps.cli.main import main
from sweeps.export.choice import choose
from sweeps.export.package import Package, Wish, assemble
from sweeps.store import Store
from sweeps.sweep import open_sweep

TABLE = """\
name: table
datasets: [{name: table, path: rows.csv, test_path: test.csv, target: label}]
model: {name: "own_model:network", hidden: 8}
methods:
  standard: {lr: 0.03, weight_decay: 0.0, numeric_inputs: piecewise, category_embedding: 1}
  joint: {method: joint_beta, lr: 0.03, weight_decay: 0.0, numeric_inputs: quantile}
training: {epochs: 12, batch_size: 32}
confirm_seeds: 2
calibrators: [temperature, isotonic_top_label, "own_model:Halve"]
"""


SEVERAL = """\
name: several
datasets: [{name: blobs-1.7, points: 300, test_points: 200}, digits]
model: {name: mlp, widths: [8]}
methods: {standard: {lr: 0.03, weight_decay: 0.0}}
training: {epochs: 3}
confirm_seeds: 1
calibrators: [temperature]
"""


OWN_MODEL = """
from own_parts import bent
from torch import nn

from calibration.calibrators import Calibrator


def network(input_shape, classes, hidden):
    return nn.Sequential(
        nn.Linear(*input_shape, hidden), nn.BatchNorm1d(hidden), bent(), nn.Linear(hidden, classes)
    )


class Halve(Calibrator):
    description = "halves all logits"
    scaling = False
    keeps_argmax = True
    fast = True

    def _fit(self, logits, labels):
        self.factor = 0.5

    def _apply(self, logits):
        return (logits * self.factor).softmax(1)
"""


OWN_PARTS = """
from torch import nn


def bent():
    return nn.Tanh()
"""


NOTHING = Wish()


@dataclass(frozen=True)
class Swept:
    """Two finished sweeps in one store, and the rows of the first."""

    directory: Path
    test: pd.DataFrame

    @property
    def store(self) -> Store:
        return Store(self.directory / "runs")

    def export(self, sweep: str, out: Path, *options: str) -> int:
        store = str(self.directory / "runs")
        return main(["export", sweep, "--out", str(out), "--store", store, *options])

    def package(
        self,
        sweep: str,
        row: str | None = None,
        *,
        dataset: str | None = None,
        seed: int | None = None,
        wish: Wish = NOTHING,
    ) -> Package:
        """What an export would write."""
        opened = open_sweep(sweep, self.store)
        chosen = choose(opened.records, opened.analysis, dataset, row, seed)
        return assemble(opened.loaded, opened.store, chosen, wish)

    def expected(self, model: Path) -> Tensor:
        """What the record's logits come to under its calibrator."""
        about = described(model)["about"]
        arrays = self.store.predictions(self.store.record(about["key"]))
        fitted = calibrators.fit(
            about["calibrator"], arrays["validation_logits"], arrays["validation_labels"]
        )
        return fitted(arrays["test_logits"])


def described(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((model / "artifacts" / "model.json").read_text())
    return found


def make_rows(count: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, city = rng.integers(18, 90, count), rng.choice(["Bonn", "Köln", "Ulm"], count)
    member, income = rng.random(count) < 0.4, rng.normal(3000, 900, count).round(2)
    score = (age - 50) / 15 + (city == "Ulm") + rng.normal(0, 0.7, count)
    frame = pd.DataFrame({"age": age, "income": income, "city": city, "member": member})
    frame.loc[rng.random(count) < 0.15, "income"] = np.nan
    frame["label"] = np.where(score > 0.8, "old", np.where(score > -0.8, "mid", "young"))
    return frame
