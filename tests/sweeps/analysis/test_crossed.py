"""Differences about new data: against closed forms, other libraries and simulations."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from baycomp.single import Posterior
from scipy import stats
from statsmodels.formula.api import ols

from calibration.metrics import METRICS
from sweeps.analysis.statistics import (
    ALPHA,
    SPENT,
    Estimate,
    claim_probabilities,
    claim_tests,
    crossed_binned,
    crossed_means,
    look_factor,
    needed,
    over_seeds,
    protected,
)
from sweeps.analysis.verdicts import UNDECIDED, Question, judged
from tests.sweeps.analysis.crossed_simulations import (
    PARTS,
    binned_estimates,
    false_looks,
    fresh_estimates,
    mean_estimates,
    rates,
)


@pytest.fixture
def cells() -> np.ndarray:
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(4, 30)) + rng.normal(size=(4, 1)) + rng.normal(size=(1, 30))
    return 0.1 + 0.02 * noise


def test_the_variance_is_that_of_the_two_way_mean_squares(cells: np.ndarray) -> None:
    seed, row = (grid.ravel() for grid in np.indices(cells.shape))
    frame = pd.DataFrame({"d": cells.ravel(), "seed": seed, "row": row})
    table = sm.stats.anova_lm(ols("d ~ C(seed) + C(row)", frame).fit())
    mean_squares = table["mean_sq"]
    expected = mean_squares["C(seed)"] + mean_squares["C(row)"] - mean_squares["Residual"]
    found = crossed_means(cells)
    assert found.mean == pytest.approx(cells.mean())
    assert found.variance == pytest.approx(expected / cells.size)
    parts = found.by_seed / 4 + found.by_row / 30 + found.by_both / 120
    assert parts == pytest.approx(found.variance)
    assert found.with_more(4, 30) == pytest.approx((found.variance, found.freedom))


def test_the_variance_is_no_less_than_its_largest_part() -> None:
    """With rows that cancel out, seeds + rows − interaction alone would be negative."""
    cells = np.array([[1.0, -1.0], [-1.0, 1.0]])
    found = crossed_means(cells + np.array([[0.1], [0.0]]))
    assert found.variance == pytest.approx(np.var([0.1, 0.0], ddof=1) / 2)


def test_seeds_that_dominate_leave_their_freedom(cells: np.ndarray) -> None:
    steep = crossed_means(cells + np.array([[0.0], [5.0], [1.0], [9.0]]))
    assert steep.freedom == pytest.approx(3, rel=1e-3)
    flat = crossed_means(np.tile(cells[:1], (4, 1)))
    assert flat.freedom == pytest.approx(29)
    assert flat.variance == pytest.approx(cells[0].var(ddof=1) / 30)


def test_what_cannot_be_tested() -> None:
    assert not over_seeds([0.1]).testable
    assert not over_seeds([0.1, 0.1, 0.1]).testable
    assert not over_seeds([0.1, math.inf]).testable
    assert over_seeds([0.0, 0.0]).variance == 0
    assert not crossed_means(np.full((3, 9), 0.2)).testable
    assert crossed_means(np.zeros((3, 9))).variance == 0
    # No row of nine differs: that does not show that one in nine does not.
    assert crossed_means(np.zeros((3, 9)), quantum=1.0).variance == pytest.approx(2 / 81)


def test_a_binned_metric_has_both_parts() -> None:
    d = [0.01, 0.02, 0.04]
    found = crossed_binned(d, 1e-4, 500)
    assert found.variance == pytest.approx(np.var(d, ddof=1) / 3 + 1e-4)
    assert crossed_binned([0.02, 0.02, 0.02], 1e-4, 500).variance == pytest.approx(1e-4)


@pytest.mark.parametrize("region", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("mean", [-0.03, 0.0, 0.012])
def test_probabilities_are_those_of_baycomp(mean: float, region: float) -> None:
    found = Estimate(mean, 2e-4, 4.3, 5)
    believed = claim_probabilities(found, region)
    left, *middle, right = Posterior(mean, 2e-4, 4.3, rope=region).probs()
    assert believed == pytest.approx((left, *(middle or [0.0]), right), abs=1e-12)
    tests = claim_tests(found, region)
    assert (tests.below, tests.above) == pytest.approx((1 - left, 1 - right))
    if region:
        assert tests.within == pytest.approx(max(left, right))


def test_the_claims_are_one_sided_tests_against_the_edges() -> None:
    d = np.array([0.02, 0.05, 0.01, 0.03])
    tests = claim_tests(over_seeds(d), 0.01)
    below = stats.ttest_1samp(d, -0.01, alternative="less").pvalue
    above = stats.ttest_1samp(d, 0.01, alternative="greater").pvalue
    assert (tests.below, tests.above) == pytest.approx((below, above))
    assert sum(p < 0.5 for p in tests) <= 1


def test_looks_share_the_level_out() -> None:
    assert sum(SPENT) == pytest.approx(ALPHA)
    assert [look_factor(k) * SPENT[k - 1] for k in (1, 2, 3)] == pytest.approx([ALPHA] * 3)
    assert look_factor(4) == look_factor(3)
    assert [protected(look) for look in (1, 3, 4)] == [True, True, False]


def test_what_would_decide_follows_from_the_region() -> None:
    """And not from what was observed: any mean asks for the same."""
    seeds = Estimate(0.0, 1e-4 / 5, 4, 5, by_seed=1e-4)
    asked = needed(seeds, 0.01, 0.05)
    assert asked is not None
    assert asked.rows == 0
    n = 5 + int(asked.seeds)
    for number, enough in ((n, True), (n - 1, False)):
        quantiles = stats.t.ppf([0.95, 0.9], number - 1).sum()
        assert (math.sqrt(1e-4 / number) * quantiles <= 0.01) == enough
    assert needed(seeds._replace(mean=0.02), 0.01, 0.05) == asked
    rows = Estimate(0.0, 1e-4, 400, 5, 500, by_seed=1e-9, by_row=0.05)
    more = needed(rows, 0.01, 0.05)
    assert more is not None
    assert more.seeds == 0
    assert more.rows + 500 == pytest.approx(0.05 / (0.01 / 2.93) ** 2, rel=0.01)
    both = needed(rows._replace(by_seed=1e-3), 0.01, 0.05)
    assert both is not None
    assert min(both) > 0
    assert needed(rows, 0.2, 0.05) == (0, 0)
    assert needed(rows, 0.0, 0.05) is None


def test_undecided_says_what_would_decide() -> None:
    nll = METRICS["nll"]
    seeds = Estimate(0.0, 2e-4 / 5, 4, 5, by_seed=2e-4)
    rows = Estimate(0.0, 1e-4, 400, 5, 500, by_seed=1e-9, by_row=0.05)
    for found, words in ((seeds, "more seeds"), (rows, "more test rows")):
        (answer,) = judged([Question.about(nll, 0.01, "family", found)])
        assert answer.verdict == UNDECIDED
        assert answer.would_decide.startswith("about ")
        assert answer.would_decide.endswith(words)


def _at_most(share: float, of: int) -> float:
    """Three standard deviations above a rate."""
    return share + 3 * math.sqrt(share * (1 - share) / of)


@pytest.mark.parametrize("dominating", PARTS)
@pytest.mark.parametrize("seeds", [3, 5])
def test_verdicts_on_means_keep_their_level(dominating: str, seeds: int) -> None:
    runs = 1500
    rng = np.random.default_rng(1)
    found = rates(mean_estimates(seeds, 100, PARTS[dominating], runs, rng))
    assert found.level <= _at_most(0.06, runs)
    assert 1 - found.coverage <= _at_most(0.07, runs)
    assert found.tail <= 12 / 0.05 * _at_most(0.05 / 12, runs)
    if dominating == "rows":
        assert found.equivalent >= 0.8 - 3 * math.sqrt(0.8 * 0.2 / runs)
        assert found.power > 0.8


def test_verdicts_on_fresh_rows_keep_their_level() -> None:
    runs = 4000
    found = rates(fresh_estimates(10, runs, np.random.default_rng(2)))
    assert found.level <= _at_most(0.05, runs)
    assert found.equivalent >= 0.8 - 3 * math.sqrt(0.8 * 0.2 / runs)


@pytest.mark.parametrize("dominating", ["seeds", "rows"])
def test_verdicts_on_binned_metrics_keep_their_level(dominating: str) -> None:
    runs = 120
    several = list(binned_estimates(4, 300, dominating, runs, np.random.default_rng(3)))
    error = float(np.std([found.mean for found in several]))
    found = rates(iter(several), error)
    assert found.level <= _at_most(0.06, runs)
    assert 1 - found.coverage <= _at_most(0.07, runs)


def test_three_looks_keep_the_level() -> None:
    runs = 1500
    share = false_looks((3, 6, 9), PARTS["seeds"], runs, np.random.default_rng(5))
    assert share <= _at_most(0.05, runs)
