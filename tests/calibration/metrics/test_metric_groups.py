"""Grouped samples: intervals and floors are those of new groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from calibration import metrics
from calibration.metrics import METRICS, bootstrap
from calibration.metrics.floor import design_effects
from calibration.metrics.predictions import Predictions
from tests.calibration.metrics.grouped_simulations import coverage, drawn


@pytest.fixture
def grouped() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(3)
    member = np.repeat(np.arange(25), rng.integers(1, 9, 25))
    rows = rng.dirichlet([2.0, 1.0, 1.0], len(member))
    labels = rng.integers(0, 3, len(member))
    return torch.from_numpy(rows), torch.from_numpy(labels), torch.from_numpy(member * 7)


def test_a_resample_repeats_whole_groups(
    grouped: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    _, labels, groups = grouped
    counts = bootstrap.resample_counts(len(labels), 40, 1, groups)
    for group in groups.unique():
        of_group = counts[:, groups == group]
        assert (of_group == of_group[:, :1]).all()
    first = torch.stack([counts[:, groups == group][:, 0] for group in groups.unique()], -1)
    assert (first.sum(-1) == 25).all()


@pytest.mark.parametrize(
    "name", ["error", "nll", "brier", "ece", "classwise_ece", "aurc", "l2_debiased"]
)
def test_a_grouped_resample_is_measured_as_its_rows_are(
    grouped: tuple[torch.Tensor, torch.Tensor, torch.Tensor], name: str
) -> None:
    rows, labels, groups = grouped
    counts = bootstrap.resample_counts(len(labels), 6, 1, groups)
    assert len(set(counts.sum(-1).tolist())) > 1
    predictions = Predictions.of(rows, labels)
    fast, _ = METRICS[name].resampled(predictions, 10, counts)
    slow, _ = bootstrap.recomputed(METRICS[name], predictions, 10, counts)
    torch.testing.assert_close(fast, slow)


def test_single_rows_as_groups_change_nothing_but_the_widening(
    grouped: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    rows, labels, _ = grouped
    own = torch.arange(len(labels))
    plain = metrics.bootstrap_intervals(rows, labels, metrics=["nll"], seed=2)["nll"]
    alone = metrics.bootstrap_intervals(rows, labels, metrics=["nll"], seed=2, groups=own)["nll"]
    middle = float(metrics.nll(rows, labels))
    number = len(labels)
    wider = stats.t.ppf(0.975, number - 1) / stats.norm.ppf(0.975)
    wider *= math.sqrt(number / (number - 1))
    assert [end - middle for end in alone] == pytest.approx(
        [wider * (end - middle) for end in plain]
    )


def test_few_groups_have_students_interval() -> None:
    draw = drawn(12, np.random.default_rng(0))
    found = metrics.bootstrap_intervals(
        draw.probabilities, draw.labels, metrics=["error"], resamples=4000, groups=draw.groups
    )["error"]
    right = (draw.labels == 0).double()
    sizes = torch.bincount(draw.groups).double()
    error = 1 - float(right.mean())
    gaps = torch.bincount(draw.groups, 1 - right) - sizes * error
    spread = math.sqrt(float(gaps.square().sum()) * 12 / 11) / len(right)  # of a ratio
    half = stats.t.ppf(0.975, 11) * spread
    assert found[0] == pytest.approx(error - half, abs=0.1 * half)
    assert found[1] - error == pytest.approx(error - found[0])
    one = metrics.bootstrap_intervals([0.7] * 9, [True] * 9, groups=torch.zeros(9, dtype=int))
    assert one["error"] == (0.0, 1.0)


def test_grouped_intervals_hold_the_truth_and_those_of_rows_do_not() -> None:
    # The full simulation is ``python -m tests.calibration.metrics.grouped_simulations``.
    repeats = 200
    allowed = 4 * math.sqrt(0.95 * 0.05 / repeats)
    for share in coverage(50, repeats, resamples=200).values():
        assert abs(share - 0.95) < allowed
    by_rows = coverage(50, repeats, grouped=False, resamples=200)
    assert by_rows["error"] < 0.95 - 2 * allowed
    few = coverage(10, repeats, resamples=200)
    assert few["error"] > 0.95 - allowed


def test_the_floor_of_groups_that_err_together_is_higher() -> None:
    # Ten copies of every sample tell no more than one: the floor is that of a tenth of them.
    rng = np.random.default_rng(1)
    level = torch.from_numpy(rng.uniform(0.5, 1, 300))
    right = torch.from_numpy(rng.random(300) < level.numpy())
    copies, groups = level.repeat_interleave(10), torch.arange(300).repeat_interleave(10)
    outcome = right.repeat_interleave(10)
    effects = design_effects(copies, outcome, groups, 15)
    used = torch.bincount((copies * 15).ceil().long() - 1, minlength=15) > 0
    torch.testing.assert_close(effects[used], torch.full_like(effects[used], 10.0))
    single = metrics.noise_floor(level, draws=2000)
    together = metrics.noise_floor(copies, draws=2000, correct=outcome, groups=groups)
    assert together.mean == pytest.approx(single.mean, rel=0.05)
    alone = metrics.noise_floor(copies, correct=outcome, groups=torch.arange(3000))
    assert alone == metrics.noise_floor(copies)
