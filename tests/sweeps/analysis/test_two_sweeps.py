"""Two sweeps side by side, against scipy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sweeps.analysis.two_sweeps import compare_sweeps, only_in_one, other_circumstances
from sweeps.cli.main import main
from sweeps.sweep import Sweep
from tests.trained import train_sweep

pytestmark = pytest.mark.slow

SPEC = """\
name: NAME
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods: {standard: {lr: 0.05, weight_decay: 0}, focal: {lr: 0.05, weight_decay: 0, gamma: 2}}
training: {epochs: 20, batch_size: full}
confirm_seeds: 4
calibrators: [identity]
seed: 0
"""


def made(directory: Path, name: str, **changes: str) -> Sweep:
    text = SPEC.replace("NAME", name)
    for old, new in changes.items():
        assert f"{old}: " in text
        text = text.replace(f"{old}: ", f"{old}: {new}  # ", 1)
    return train_sweep(directory, text)


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sweep]:
    directory = tmp_path_factory.mktemp("compared")
    training = "{epochs: 2, batch_size: full}"
    return {
        "first": made(directory, "first"),
        "again": made(directory, "again"),
        "short": made(directory, "short", training=training),
        "fewer": made(directory, "fewer", training=training, confirm_seeds="3"),
        "other seeds": made(directory, "other", training=training, seed="100"),
        "other bins": made(directory, "bins", calibrators="[identity]\nbins: 5"),
        "one method": made(directory, "one", methods="{standard: {lr: 0.05, weight_decay: 0}}"),
    }


def values(sweep: Sweep, method: str, metric: str) -> np.ndarray:
    rows = sweep.results[sweep.results["row"] == method]
    return rows.sort_values("seed")[metric].to_numpy()


def test_the_same_again_is_identical(sweeps: dict[str, Sweep]) -> None:
    table = compare_sweeps(sweeps["first"].analysis, sweeps["again"].analysis)
    assert len(table) == 2 * 4
    assert set(table["verdict"]) == {"identical"}
    assert only_in_one(sweeps["first"].analysis, sweeps["again"].analysis) == []
    assert other_circumstances(sweeps["first"].analysis, sweeps["again"].analysis) == [
        "- name: first",
        "+ name: again",
    ]


@pytest.mark.parametrize("method", ["standard", "focal"])
def test_shared_seeds_are_paired(sweeps: dict[str, Sweep], method: str) -> None:
    a, b = sweeps["first"], sweeps["fewer"]
    table = compare_sweeps(a.analysis, b.analysis)
    line = table[(table["row"] == method) & (table["metric"] == "nll")].iloc[0]
    old, new = values(a, method, "nll")[:3], values(b, method, "nll")
    expected = stats.ttest_rel(new, old)
    assert line["test"] == "paired"
    assert line["seeds_a"] == line["seeds_b"] == 3
    assert line["difference"] == pytest.approx((new - old).mean())
    edges = [stats.ttest_1samp(new - old, edge) for edge in (-0.01, 0.01)]
    assert line["p"] == pytest.approx(_smallest(*edges))
    interval = expected.confidence_interval()
    assert [line["low"], line["high"]] == pytest.approx([interval.low, interval.high])


def _smallest(low: Any, high: Any) -> float:
    """The smallest one-sided p of the three claims, from the tests against both edges."""
    below = stats.t.cdf(low.statistic, low.df)
    above = stats.t.sf(high.statistic, high.df)
    return float(min(below, above, max(1 - below, 1 - above)))


def test_other_seeds_are_compared_by_welchs_test(sweeps: dict[str, Sweep]) -> None:
    a, b = sweeps["first"], sweeps["other seeds"]
    table = compare_sweeps(a.analysis, b.analysis)
    line = table[(table["row"] == "standard") & (table["metric"] == "ece")].iloc[0]
    old, new = values(a, "standard", "ece"), values(b, "standard", "ece")
    expected = stats.ttest_ind(new, old, equal_var=False)
    assert line["test"] == "unpaired"
    edges = [stats.ttest_ind(new + edge, old, equal_var=False) for edge in (0.005, -0.005)]
    assert line["p"] == pytest.approx(_smallest(*edges))
    interval = expected.confidence_interval()
    assert [line["low"], line["high"]] == pytest.approx([interval.low, interval.high])


def test_a_training_cut_short_is_worse(sweeps: dict[str, Sweep]) -> None:
    table = compare_sweeps(sweeps["first"].analysis, sweeps["short"].analysis)
    nll = table[table["metric"] == "nll"]
    assert set(nll["verdict"]) == {"worse"}
    # All methods in all claimed metrics are corrected together.
    claimed = table[table["metric"].isin(("ece", "nll", "error"))]
    worse = claimed[claimed["verdict"] == "worse"].sort_values("p")
    first = worse.iloc[0]
    assert first["p_holm"] == pytest.approx(6 * first["p"])
    back = compare_sweeps(sweeps["short"].analysis, sweeps["first"].analysis)
    assert set(back[back["metric"] == "nll"]["verdict"]) == {"better"}


def test_other_bins_are_not_compared(sweeps: dict[str, Sweep]) -> None:
    table = compare_sweeps(sweeps["first"].analysis, sweeps["other bins"].analysis).set_index(
        "metric"
    )
    assert set(table.loc["ece", "verdict"]) == {"other bins"}
    assert table.loc["ece", "p_holm"].isna().all()
    assert set(table.loc["nll", "verdict"]) == {"identical"}


def test_the_command_tells_all_of_it(
    sweeps: dict[str, Sweep], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(sweeps["first"].store.root).parent)
    assert main(["compare", "first", "one"]) == 0
    printed = capsys.readouterr().out
    assert "only in first: focal on blobs-1.7" in printed
    assert "identical" in printed
    assert main(["compare", "first", "short", "--csv"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("dataset,row,calibrator_a,calibrator_b,metric,test")
    assert len(lines) == 2 * 4
    assert main(["compare", "first", "nix"]) == 2
    assert "there is no sweep 'nix'" in capsys.readouterr().err
