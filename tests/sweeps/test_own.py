"""A user's own data, network, method and calibrator, from a file beside the spec."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

OWN = """
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import nn

from calibration.hyperparameters import Uniform
from calibration.methods import LossMethod, MethodHyperparameters
from calibration.post_hoc import Calibrator


def points(count):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(count, 3)).astype(np.float32)
    labels = (inputs.sum(1) + generator.normal(size=count) > 0).astype(np.int64)
    return inputs, labels


def network(input_shape, classes, hidden):
    first, last = nn.Linear(*input_shape, hidden), nn.Linear(hidden, classes)
    return nn.Sequential(first, nn.BatchNorm1d(hidden), nn.Tanh(), last)


class PolyHyperparameters(MethodHyperparameters):
    epsilon: Annotated[float, Field(ge=-1, le=10), Uniform(0.0, 4.0)] = 1.0


class Poly(LossMethod):
    description = "cross-entropy with its first polynomial coefficient changed"
    Hyperparameters = PolyHyperparameters

    def loss(self, output, labels, numbers):
        log_p = output.logits.log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)
        return (-log_p + numbers["epsilon"] * (1 - log_p.exp())).mean()


class Broken(Calibrator):
    description = "raises"
    scaling = False
    keeps_argmax = True
    fast = True

    def _fit(self, logits, labels):
        raise LookupError("no such map")

    def _apply(self, logits):
        return logits


class Halve(Calibrator):
    description = "halves all logits"
    scaling = False
    keeps_argmax = True
    fast = True

    def _fit(self, logits, labels):
        pass

    def _apply(self, logits):
        return (logits / 2).softmax(1)
"""

SPEC = """\
name: own
datasets: [{name: "mine:points", count: 400}]
model: {name: "mine:network", hidden: 8}
methods: [standard, "mine:Poly"]
training: {epochs: 5, batch_size: 64}
search: {trials: 2}
confirm_seeds: 2
post_hoc: [temperature, "mine:Broken", "mine:Halve"]
"""


def test_everything_can_be_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "own.yaml").write_text(SPEC)
    command = Path(sys.executable).parent / "calsweep"
    done = subprocess.run(
        [command, "run", "own.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr + done.stdout
    assert "mine:Broken failed and has no row: LookupError: no such map" in done.stdout
    found = [json.loads(p.read_text()) for p in tmp_path.glob("runs/records/*/record.json")]
    assert len(found) == 2 * (2 + 2)
    assert {r["config"]["method"] for r in found} == {"standard", "mine:Poly"}
    assert {r["status"] for r in found} == {"done"}
    leaderboard = (tmp_path / "runs" / "own" / "leaderboard.csv").read_text()
    assert "mine:Poly,mine:Halve" in leaderboard
    # A map that raises costs its own row and nothing else, and says why.
    assert "mine:Broken" not in leaderboard
    broken = list(tmp_path.glob("runs/records/*/*/maps/*/mine:Broken.json"))
    assert len(broken) == 2 * 2
    assert all("LookupError: no such map" in path.read_text() for path in broken)
