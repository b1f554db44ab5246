"""What must hold of every learner: test data is not read in the search, attempts may be cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from calibration.learners import LEARNERS
from sweeps.engine.cell import Cells
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.spec import load_spec
from sweeps.spec.schema import Evaluation
from sweeps.store import Store

FEW = "rounds: 4, patience: 2"
BRIEF = {
    "logistic_regression": "",
    "random_forest": "n_estimators: [5, 8]",
    "hist_gradient_boosting": f"{FEW}, min_samples_leaf: [2, 5]",
    "lightgbm": f"{FEW}, min_data_in_leaf: [2, 5]",
    "xgboost": f"{FEW}, learning_rate: [0.3, 0.1]",
    "catboost": f"{FEW}, depth: [2, 3]",
}
HEAD = """\
name: every
datasets: [{name: table, path: rows.csv, target: label, test_path: test.csv}]
model: {name: mlp, widths: [4]}
search: {trials: 3}
confirm_seeds: 1
calibrators: [temperature]
methods:
  bayes: {method: "sklearn.naive_bayes:GaussianNB", var_smoothing: {loguniform: [1e-9, 0.1]}}
"""


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    label = np.arange(rows) % 3
    size = label + rng.normal(size=rows)
    size[::19] = np.nan
    colour = np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)]
    return pd.DataFrame({"size": size, "colour": colour, "label": np.array(list("abc"))[label]})


def garbage(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers beyond all others, categories that nobody knows, labels all wrong."""
    wrong = frame["label"].map({"a": "b", "b": "c", "c": "a"})
    return frame.assign(size=1e30, colour="poison", label=wrong)


def write(folder: Path, *, poisoned: bool) -> Path:
    folder.mkdir()
    table(120, 0).to_csv(folder / "rows.csv", index=False)
    test = table(40, 1)
    (garbage(test) if poisoned else test).to_csv(folder / "test.csv", index=False)
    rows = "".join(f"  {name}: {{{settings}}}\n" for name, settings in BRIEF.items())
    (folder / "s.yaml").write_text(HEAD + rows)
    return folder / "s.yaml"


def searched(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Of every row what was suggested, the curve that came of it, and what was predicted."""
    store = Store(path.parent / "runs")
    plan = Plan(load_spec(path), store)
    plan.replay()
    while (trial := plan.next()) is not None and trial.config.phase == "search":
        attempt = TrialRun(trial.config, store, calibrators=[], evaluation=Evaluation())
        assert attempt.advance(600)
        plan.complete(trial.key)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for cell in plan.cells.values():
        lines = found.setdefault(cell.row, [])
        for trial in plan.search_trials(cell):
            record = store.record(trial.key)
            assert record is not None, "trained above"
            assert record.status == "done"
            arrays = store.predictions(record)
            assert not any(name.startswith("test") for name in arrays)
            bits = {name: values.numpy().tobytes() for name, values in sorted(arrays.items())}
            lines.append((trial.config.hyperparameters, record.curve, record.best_epoch, bits))
    return found


def test_every_learner_is_here() -> None:
    assert set(BRIEF) == set(LEARNERS)


def test_poisoned_test_rows_change_no_search(tmp_path: Path) -> None:
    clean = searched(write(tmp_path / "clean", poisoned=False))
    poisoned = searched(write(tmp_path / "poisoned", poisoned=True))
    assert clean.keys() == {*LEARNERS, "bayes"}
    assert clean == poisoned


@pytest.mark.parametrize("name", list(LEARNERS))
def test_attempts_that_are_cut_off_go_on_to_the_same_bits(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.engine.trial.CHECKPOINT_SECONDS", -1.0)  # after every round
    spec = load_spec(write(tmp_path / "cut", poisoned=False))
    settings = {} if name in ("logistic_regression", "random_forest") else {"rounds": 4}
    config = Cells(spec).config("rows", name, settings, 0, "confirm")
    cut, alone = Store(tmp_path / "runs"), Store(tmp_path / "alone")
    for reached in (1, 2, 3):  # each attempt is a new one, and knows the checkpoint alone
        rungs = (reached,) if settings else ()
        attempt = TrialRun(config, cut, calibrators=[], evaluation=Evaluation(), rungs=rungs)
        assert attempt.advance(600) == (not settings)
        assert not settings or cut.checkpoint(config.key())["epoch"] == reached
    records = []
    for place in (cut, alone):
        assert TrialRun(config, place, calibrators=[], evaluation=Evaluation()).advance(600)
        records.append(place.record(config.key()))
    found, expected = records
    assert found is not None
    assert expected is not None
    assert found.status == expected.status == "done"
    assert found.curve == expected.curve
    mine, theirs = cut.predictions(found), alone.predictions(expected)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[part], theirs[part]) for part in mine)
