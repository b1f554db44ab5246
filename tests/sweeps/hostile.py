"""A sweep trained here whose names are written in every language that a report is written in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from sweeps.sweep import Sweep
from tests.trained import train_sweep

MATHS = r"a$\frac{$ lr $5 to $6_"
FORMULA = "=cmd|' /C calc'!A0"
MARKUP = "[/red][bold] :smile: `x` **b** {y} <script>alert(1)</script>"
HIDDEN = "_under & 50% ~x #1 \\input <b>bold</b> &lt;i&gt;"
ROWS = (MATHS, FORMULA, MARKUP, HIDDEN)
DATA = "-1+$x_1 \\frac{ [red]x <b>|\x1b[31m\u202ey :smile:"
CLASSES = ("\x1b[31mred\x1b[0m", "=HYPERLINK(1) | `$\\frac{$` <img src=x>")
TEXT = f"""\
name: hostile
datasets: [{{name: table, path: {json.dumps(DATA + ".csv")}, target: label}}]
model: {{name: mlp, widths: [4]}}
methods:
  ? {json.dumps(MATHS)}
  : {{method: standard, lr: {{loguniform: [0.01, 0.1]}}, weight_decay: 0}}
  ? {json.dumps(FORMULA)}
  : {{method: focal, lr: 0.05, weight_decay: 0, gamma: 2}}
  ? {json.dumps(MARKUP)}
  : {{method: label_smoothing, lr: 0.05, weight_decay: 0, epsilon: 0.1}}
  ? {json.dumps(HIDDEN)}
  : {{method: standard, lr: 0.05, weight_decay: 0}}
training: {{epochs: 3, batch_size: full, evaluate_every: 1}}
search: {{sampler: random, trials: 4}}
confirm_seeds: 2
calibrators: [temperature]
"""


def hostile_sweep(directory: Path) -> Sweep:
    """Train it: four rows on a table of two classes, whose file bears the dataset's name."""
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 2, 200)
    frame = pd.DataFrame({"x": labels + draws.normal(size=200), "y": draws.normal(size=200)})
    frame["label"] = [CLASSES[label] for label in labels]
    frame.to_csv(directory / f"{DATA}.csv", index=False)
    return train_sweep(directory, TEXT, pictures=True)
