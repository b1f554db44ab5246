"""A sweep over rows that belong together, from the spec to the verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from sweeps.export.choice import choose
from sweeps.export.package import Wish, assemble
from sweeps.report.terminal import print_leaderboard
from sweeps.report.write import write_report
from sweeps.spec import load_spec
from sweeps.spec.reading import SpecError
from tests.trained import train_sweep

SPEC = """\
name: grouped
datasets: [{name: table, path: t.csv, target: y, drop: [who, day], ROLE}]
model: {name: mlp, widths: [4]}
methods:
  standard: {lr: 0.05, weight_decay: 0}
  focal: {lr: 0.05, weight_decay: 0, gamma: 2}
training: {epochs: 3, batch_size: full}
search: {sampler: random, trials: 1}
confirm_seeds: 3
calibrators: [temperature]
protocol: nested
"""


CLASSES = ("ant", "bee", "cat")


def write(folder: Path, customers: int = 80) -> None:
    rng = np.random.default_rng(0)
    rows = 6 * customers
    labels = rng.integers(0, 3, rows)
    names = np.array(CLASSES)[labels]
    frame = pd.DataFrame({"x": labels + rng.normal(size=rows), "y": names})
    frame.assign(who=np.arange(rows) // 6, day=np.arange(rows) // 6).to_csv(
        folder / "t.csv", index=False
    )


@pytest.mark.parametrize("role", ["group: who", "time: day"])
def test_what_belongs_together_reaches_the_verdicts(tmp_path: Path, role: str) -> None:
    write(tmp_path)
    sweep = train_sweep(tmp_path, SPEC.replace("ROLE", role))
    grouped = role.startswith("group")
    dataset = sweep.loaded.datasets["t"]
    trials = sweep.records.confirmed("t", "standard")
    for trial in trials:
        assert trial.done is not None
        arrays = sweep.store.predictions(trial.done)
        assert ("test_groups" in arrays) == ("validation_groups" in arrays) == grouped
        assert ("validation_times" in arrays) == (not grouped)
        assert not any(evaluation.failed for evaluation in trial.evaluations.values())
        scores = sweep.records.row_scores(trial, "temperature")
        assert scores is not None
        expected = dataset.test(0).groups
        assert (scores.groups is None) == (expected is None)
        assert expected is None or torch.equal(torch.as_tensor(scores.groups), expected)
    undecided = sweep.analysis.comparisons.query("metric == 'nll' and row == 'focal'")
    assert undecided["pairs"].tolist() == [3] * len(undecided)
    assert ("group" in " ".join(undecided["would_decide"])) <= grouped
    # An export fits and judges its calibrator in the same folds as the record did.
    chosen = choose(sweep.records, sweep.analysis, None, "standard", None)
    assert assemble(sweep.loaded, sweep.store, chosen, Wish()).rows["test"] == 120
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as captured:
        print_leaderboard(sweep.analysis, sweep.records, console)
    said = " ".join(captured.get().split())
    assert ("new groups (20 in the test part)" in said) == grouped
    assert ("fewer than 30 groups" in said) == grouped
    assert ("the same for every seed" in said) == (not grouped)
    if not grouped:
        return
    files: dict[str, bytes] = {}
    write_report(sweep.records, sweep.store, write=files.__setitem__)
    page = files["report.html"].decode()
    assert "intervals, band and floor are for new groups" in page
    assert all(f"Reliability of the probability of {name}" in page for name in CLASSES)


def test_groups_that_cannot_be_divided_are_refused_before_anything_starts(tmp_path: Path) -> None:
    write(tmp_path, customers=4)
    (tmp_path / "s.yaml").write_text(SPEC.replace("ROLE", "group: who"))
    with pytest.raises(SpecError, match=r"s\.yaml:2: .*rows of one group; at least two are needed"):
        load_spec(tmp_path / "s.yaml")
