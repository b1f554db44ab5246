"""A whole sweep of a few seconds, and the command as users give it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SPEC = """\
name: tiny
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  standard: {lr: {loguniform: [0.01, 0.1]}, weight_decay: 0}
  focal: {lr: 0.05, weight_decay: 0, gamma: [0, 2]}
training: {epochs: 12, batch_size: full, evaluate_every: 3}
search: {trials: 3}
confirm_seeds: 2
calibrators: [temperature, isotonic_top_label]
"""


def calsweep(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweeps.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "140"},
    )
