"""Metrics of binary problems and rare classes: scikit-learn as oracle, and the blind rule."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from torch import Tensor

from calibration import metrics
from calibration.metrics import bootstrap, rare
from calibration.metrics.one_vs_rest import influences
from calibration.metrics.predictions import Predictions


def rare_rows(n: int, share: float, seed: int, ties: bool = False) -> tuple[Tensor, Tensor]:
    """Two classes, the second rare; its probability is informative and a little too large."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < share
    score = rng.normal(size=n) + 1.5 * labels + math.log(share / (1 - share)) - 0.5
    p = 1 / (1 + np.exp(-score))
    p = np.round(p, 2) if ties else p
    return torch.from_numpy(np.stack([1 - p, p], 1)), torch.from_numpy(labels.astype(np.int64))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_two_classes_are_judged_by_the_rarer_as_scikit_learn_does(ties, swapped) -> None:
    probabilities, labels = rare_rows(900, 0.06, seed=1, ties=ties)
    p, truth = probabilities[:, 1].numpy(), labels.numpy()
    if swapped:  # the rare class may be the first
        probabilities, labels = probabilities.flip(1), 1 - labels
    found = metrics.panel(probabilities, labels)
    assert found["auroc"] == pytest.approx(sklearn.metrics.roc_auc_score(truth, p), abs=1e-12)
    expected = sklearn.metrics.average_precision_score(truth, p)
    assert found["average_precision"] == pytest.approx(expected, abs=1e-12)
    assert found["base_rate"] == pytest.approx(truth.mean(), abs=1e-15)
    assert found["rare_class_bias"] == pytest.approx(p.mean() - truth.mean(), abs=1e-12)
    skill = 1 - np.mean((p - truth) ** 2) / (truth.mean() * (1 - truth.mean()))
    assert found["brier_skill"] == pytest.approx(skill, abs=1e-12)
    pair = metrics.ace(torch.from_numpy(p), labels == int(not swapped))
    assert found["rare_class_ece"] == pytest.approx(pair.item(), abs=1e-15)


def test_several_classes_are_averaged_and_absent_ones_left_out(draw) -> None:
    probabilities, labels = draw(600, 4, sharpness=0.7)
    keep = labels != 2
    probabilities, labels = probabilities[keep], labels[keep]
    there = (0, 1, 3)
    truth, rows = labels.numpy(), probabilities.numpy()
    found = metrics.panel(probabilities, labels)
    areas = [sklearn.metrics.roc_auc_score(truth == k, rows[:, k]) for k in there]
    assert found["auroc"] == pytest.approx(np.mean(areas), abs=1e-12)
    precisions = [sklearn.metrics.average_precision_score(truth == k, rows[:, k]) for k in there]
    assert found["average_precision"] == pytest.approx(np.mean(precisions), abs=1e-12)
    recalls = sklearn.metrics.recall_score(truth, rows.argmax(1), labels=there, average=None)
    assert found["balanced_error"] == pytest.approx(1 - np.mean(recalls), abs=1e-12)
    assert found["overconfidence"] == pytest.approx(
        rows.max(1).mean() - (rows.argmax(1) == truth).mean(), abs=1e-12
    )
    shares = np.bincount(truth, minlength=4) / len(truth)
    reference = metrics.brier(torch.from_numpy(shares).expand(len(truth), -1), labels).item()
    expected = 1 - metrics.brier(probabilities, labels).item() / reference
    assert found["brier_skill"] == pytest.approx(expected, abs=1e-12)
    assert found["base_rate"] == pytest.approx(shares[shares > 0].min(), abs=1e-15)


def test_one_class_alone_has_nothing_to_rank_and_no_skill() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    found = metrics.panel(probabilities, torch.zeros(3, dtype=torch.int64))
    assert all(math.isnan(found[name]) for name in ("auroc", "average_precision", "brier_skill"))
    assert found["balanced_error"] == pytest.approx(1 / 3)
    intervals = metrics.bootstrap_intervals(
        probabilities, torch.zeros(3, dtype=torch.int64), metrics=["auroc"]
    )
    assert math.isnan(intervals["auroc"][0])


NEW = (
    *("auroc", "average_precision", "balanced_error", "brier_skill"),
    *("rare_class_bias", "rare_class_ece", "base_rate", "overconfidence"),
)


@pytest.mark.parametrize("name", NEW)
def test_a_batch_is_its_elements(draw, name: str) -> None:
    parts = [draw(200, 3, seed=seed) for seed in (1, 2)]
    measured = getattr(metrics, name)(*(torch.stack(each) for each in zip(*parts, strict=True)))
    expected = [getattr(metrics, name)(*part) for part in parts]
    assert torch.allclose(measured, torch.stack(expected), atol=1e-14)


@pytest.mark.parametrize("name", ["auroc", "average_precision", "balanced_error", "brier_skill"])
@pytest.mark.parametrize("classes", [2, 3])
def test_influences_are_derivatives_by_the_rows_weights(draw, name: str, classes: int) -> None:
    probabilities, labels = draw(40, classes, sharpness=0.6)
    if classes == 2:
        probabilities, labels = probabilities[labels.argsort()[6:]], labels.sort().values[6:]
    many = 2000  # copies of every row: one more of a row is a small change of its weight
    base = torch.full((len(labels),), many)
    counts = torch.ones(1, len(labels), dtype=torch.uint8)
    predictions, metric = Predictions.of(probabilities, labels), metrics.METRICS[name]
    value = metric.measure(predictions, 15)
    for row in range(0, len(labels), 7):
        more = base.clone()
        more[row] += 1
        moved = metric.measure(
            predictions.take(torch.arange(len(labels)).repeat_interleave(more)), 15
        )
        twice = counts.clone()
        twice[0, row] += 1
        # A resample of other size is scaled, as those of groups are.
        linear = (metric.resampled(predictions, 15, twice)[0][0] - value) * (1 + 1 / len(labels))
        assert (moved - value).item() * many == pytest.approx(linear.item(), rel=2e-3, abs=1e-9)
    assert influences(predictions).sum(0).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["auroc", "average_precision", "brier_skill", "balanced_error"])
def test_linear_resamples_spread_as_recomputed_ones(name: str) -> None:
    predictions = Predictions.of(*rare_rows(1500, 0.05, seed=3))
    counts = bootstrap.resample_counts(1500, 200, seed=5)
    metric = metrics.METRICS[name]
    fast, _ = metric.resampled(predictions, 15, counts)
    slow, _ = bootstrap.recomputed(metric, predictions, 15, counts)
    assert fast.std().item() == pytest.approx(slow.std().item(), rel=0.15)
    assert np.corrcoef(fast, slow)[0, 1] > 0.97


def test_intervals_of_rare_classes_cover_the_truth() -> None:
    """About 60 positives in each sample; the truth is that of very many rows."""
    truth = metrics.panel(*rare_rows(400_000, 0.03, seed=0), metrics=list(NEW))
    repeats, covered = 120, dict.fromkeys(("auroc", "average_precision", "brier_skill"), 0)
    for seed in range(repeats):
        found = metrics.bootstrap_intervals(
            *rare_rows(2000, 0.03, seed=seed + 1), metrics=list(covered), resamples=200, seed=seed
        )
        for name, (low, high) in found.items():
            covered[name] += low <= truth[name] <= high
    for name, count in covered.items():  # 95 %, less three standard errors
        assert count / repeats >= 0.89, name


def test_ece_is_blind_where_bluffing_reads_almost_nothing() -> None:
    assert doctest.testmod(rare).failed == 0
    spots = metrics.blind_spots([0.986, 0.014])
    labels = (torch.arange(1000) < 14).long()
    bluff = torch.tensor([[1.0, 0.0]]).expand(1000, -1)
    assert metrics.ece(bluff, labels).item() == pytest.approx(spots.bluff)
    assert spots.blind
    assert metrics.blind_spots([0.94, 0.06]) == (0.06, False, ())
    assert metrics.blind_spots([0.04, 0.96]).rare == (0,)
    # A class may be rare among others that are not; a hundred equal ones are not rare.
    assert metrics.blind_spots([0.49, 0.01, 0.5, 0.0]) == (0.5, False, (1,))
    assert metrics.blind_spots([0.01] * 100).rare == ()
    assert metrics.blind_spots([0.97, 0.02, 0.01]) == (0.03, True, (2, 1))
