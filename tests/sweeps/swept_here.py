"""A small sweep trained in this process, for tests of what is made from its records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from sweeps.engine.plan import Plan
from sweeps.store import Store
from sweeps.sweep import Sweep, open_sweep
from tests.outcomes import changed
from tests.trained import finish

HOSTILE_ROW = "</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE_DATA = "a<i>&'\"b"
TEXT = """\
name: small
datasets:
  - blobs-1.7
  - {name: table, path: DATA, target: label}
model: {name: mlp, widths: [8]}
methods:
  standard: {lr: {loguniform: [0.01, 0.1]}, weight_decay: 0}
  ROW: {method: focal, lr: 0.05, weight_decay: 0, gamma: 2}
  bo4sc: {lr: 0.05, weight_decay: 0, inner_steps: 1, outer_lr: 5.0, sharpness: 30.0}
training: {epochs: 30, batch_size: full, evaluate_every: 3}
search: {sampler: random, trials: 4}
confirm_seeds: 3
calibrators: [temperature, isotonic_top_label]
"""


def sweep_here(directory: Path) -> Sweep:
    """Train it: three methods on two datasets; one confirm trial is then made a failure."""
    data = directory / f"{HOSTILE_DATA}.csv"
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 2, 300)
    frame = pd.DataFrame({"x": labels + draws.normal(size=300), "y": draws.normal(size=300)})
    frame.assign(label=labels).to_csv(data, index=False)
    text = TEXT.replace("DATA", _quoted(data.name)).replace("ROW", _quoted(HOSTILE_ROW))
    (directory / "small.yaml").write_text(text)
    store = Store(directory / "runs")
    trained = finish(directory / "small.yaml", store)
    _make_fail(trained.plan, store)
    return open_sweep("small", store)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _make_fail(plan: Plan, store: Store) -> None:
    trial = plan.confirmed("blobs-1.7", "bo4sc")[1]
    record = store.record(trial.key)
    assert record is not None
    assert record.status == "done"
    store.retire(record)
    store.file_record(trial.key, changed(record, status="failed", reason="<b>as planned</b>"))
