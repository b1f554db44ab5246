"""Ensembles of a sweep's confirmed networks: evaluated once, shown, and never chosen."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from calibration import metrics
from calibration.ensembles import pooled
from sweeps.analysis.ensembles import jackknife_error
from sweeps.engine.plan import Plan
from sweeps.report.terminal import print_leaderboard
from sweeps.report.write import write_report
from sweeps.spec import SpecError, load_spec
from sweeps.store import Store
from sweeps.sweep import Sweep
from tests.trained import finish, train_sweep

SPEC = """\
name: pooled
datasets: [iris]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: 0.1, weight_decay: 0}}
training: {epochs: 3, batch_size: full}
confirm_seeds: 3
calibrators: [temperature, isotonic_top_label]
ensembles: true
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return train_sweep(tmp_path_factory.mktemp("pooled"), SPEC)


def test_an_ensemble_is_computed_from_its_members_predictions(sweep: Sweep) -> None:
    found = sweep.analysis.ensembles
    # A calibrator of the top label alone leaves nothing to pool.
    assert found["calibrator"].tolist() == ["identity", "temperature"]
    line = found.iloc[0]
    arrays = [
        sweep.store.predictions(trial.done)
        for trial in sweep.records.confirmed("iris", "standard")
        if trial.done is not None
    ]
    rows = [each["test_logits"].double().softmax(-1) for each in arrays]
    labels = arrays[0]["test_labels"]
    assert line["nll"] == pytest.approx(metrics.nll(pooled(rows), labels).item(), rel=1e-6)
    parts = [
        metrics.nll(pooled([r for j, r in enumerate(rows) if j != i]), labels).item()
        for i in range(3)
    ]
    assert line["nll_se"] == pytest.approx(jackknife_error(parts), rel=1e-4)


def test_it_costs_what_its_members_cost(sweep: Sweep) -> None:
    line = sweep.analysis.ensembles.iloc[0]
    assert line["inference_cost"] == line["seeds"] == 3
    spent = [t.done.seconds_alone for t in sweep.records.confirmed("iris", "standard") if t.done]
    assert line["train_seconds"] == pytest.approx(sum(spent))


def test_it_is_neither_chosen_nor_compared(sweep: Sweep) -> None:
    analysis = sweep.analysis
    for table in (analysis.results, analysis.leaderboard, analysis.comparisons, analysis.fronts):
        assert not table["row"].str.startswith("ensemble").any()
    assert not any(row.startswith("ensemble") for row, _ in analysis.selection.winners.values())
    assert not analysis.ensembles[["chosen", "winner"]].any(axis=None)
    assert not any(name.startswith("validation/") for name in analysis.ensembles)


def test_it_is_shown_in_the_terminal_the_page_and_the_file(sweep: Sweep) -> None:
    out = io.StringIO()
    print_leaderboard(sweep.analysis, sweep.records, Console(file=out, width=200))
    assert "ensemble of 3: standard" in out.getvalue()
    assert "jackknife" in out.getvalue()
    write_report(sweep.records, sweep.store)
    page = sweep.store.read_file("pooled", "report.html")
    assert page is not None
    assert "ensemble of 3: standard" in page.decode()
    table = pd.read_csv(io.BytesIO(sweep.store.read_file("pooled", "leaderboard.csv") or b""))
    pool = table[table["row"] == "ensemble of 3: standard"]
    assert len(pool) == 2
    assert not pool["winner"].any()
    assert (pool["ece_se"] >= 0).all()


def test_it_is_made_once_and_made_up_for(tmp_path: Path) -> None:
    """Turned on later, nothing is trained; lost, it is evaluated again by the last seed's trial."""
    text = SPEC.replace("ensembles: true\n", "").replace(", isotonic_top_label", "")
    before = train_sweep(tmp_path, text)
    assert before.analysis.ensembles.empty
    (tmp_path / "spec.yaml").write_text(SPEC.replace(", isotonic_top_label", ""))
    store = Store(tmp_path / "runs")
    plan = Plan(load_spec(tmp_path / "spec.yaml"), store)
    plan.replay()
    asked = plan.next()
    assert asked is not None
    assert asked.config.seed == 3
    assert plan.trained == 0
    after = finish(tmp_path / "spec.yaml", store)
    assert len(after.analysis.ensembles) == 2
    again = Plan(load_spec(tmp_path / "spec.yaml"), store)
    again.replay()
    assert again.next() is None


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(0).normal(size=12)
    means = [(values.sum() - value) / 11 for value in values]
    assert jackknife_error(means) == pytest.approx(values.std(ddof=1) / math.sqrt(12))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[iris]", "[blobs-1.7]"), "every seed of 'blobs-1.7' draws its own test rows"),
        (("confirm_seeds: 3", "confirm_seeds: 1"), "an ensemble has at least 2 members"),
    ],
)
def test_what_has_no_ensemble_is_refused(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC.replace(*change))
    with pytest.raises(SpecError, match=complaint):
        load_spec(tmp_path / "spec.yaml")
