"""Weights of samples: only ratios matter, and whole numbers are as good as repeated samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference
from torch import Tensor

from calibration import metrics
from calibration.metrics import METRICS, bootstrap
from calibration.metrics.predictions import Predictions
from calibration.metrics.row_scores import ROW_MEANS, row_scores

BINS = 5
WEIGHTED = [name for name in METRICS.names(needs="rows") if METRICS[name].weighted]
UNWEIGHTED = {"kde_ece", "l2_debiased", "aurc", "true_ce", "posterior_gap"}


def drawn(classes: int, seed: int = 0, samples: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities with ties, labels, and whole weights whose sum the bins divide."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    logits[: samples // 4] = logits[samples // 4 : samples // 2]
    labels = torch.randint(classes, (samples,), generator=generator)
    weights = torch.randint(0, 4, (samples,), generator=generator)
    weights[0] += (-int(weights.sum())) % BINS
    return logits.softmax(-1), labels, weights


def repeated(weights: Tensor) -> Tensor:
    return torch.arange(len(weights)).repeat_interleave(weights)


def test_who_depends_on_the_number_of_samples_is_listed() -> None:
    assert {name for name, metric in METRICS.items() if not metric.weighted} == UNWEIGHTED


@pytest.mark.parametrize("classes", [2, 4])
def test_whole_weights_are_repeated_samples(classes: int) -> None:
    rows, labels, weights = drawn(classes)
    index = repeated(weights)
    found = metrics.panel(rows, labels, bins=BINS, weights=weights.double())
    expected = metrics.panel(rows[index], labels[index], bins=BINS)
    same = [name for name in WEIGHTED if name != "mce_count"]
    assert {n: found[n] for n in same} == pytest.approx({n: expected[n] for n in same}, abs=1e-12)
    plain = metrics.panel(rows, labels, bins=BINS)
    changed = [name for name in same if not math.isclose(found[name], plain[name], rel_tol=1e-6)]
    assert set(same) - set(changed) <= {"mce"}
    for name in UNWEIGHTED - {"true_ce", "posterior_gap"}:
        assert found[name] == plain[name]
    # Of the deciding bin: how many samples there are, whatever they weigh.
    there = weights > 0
    alone = metrics.mce_with_count(rows[there], labels[there], bins=BINS)
    assert found["mce_count"] in torch.bincount((rows[there].amax(-1) * BINS).ceil().long() - 1)
    assert alone.count > 0


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(1e-6, 1e6), seed=st.integers(0, 99))
def test_the_scale_of_weights_does_not_matter(scale: float, seed: int) -> None:
    rows, labels, _ = drawn(3, seed, samples=60)
    weights = torch.rand(60, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    one, other = (
        metrics.panel(rows, labels, bins=BINS, weights=factor * weights) for factor in (1.0, scale)
    )
    assert one == pytest.approx(other, rel=1e-9, abs=1e-9)


def test_equal_weights_change_no_bit() -> None:
    rows, labels, _ = drawn(3)
    given = torch.full((len(labels),), 0.3)
    assert metrics.panel(rows, labels, weights=given) == metrics.panel(rows, labels)
    assert metrics.bootstrap_intervals(
        rows, labels, weights=given, resamples=20
    ) == metrics.bootstrap_intervals(rows, labels, resamples=20)


def test_weights_agree_with_scikit_learn() -> None:
    rows, labels, _ = drawn(2)
    weights = torch.rand(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = metrics.panel(rows, labels, weights=weights)
    y, w = labels.numpy(), weights.numpy()
    rare = int(np.argmin(np.bincount(y, w)))
    score = rows[:, rare].numpy()
    guess = rows.argmax(-1).numpy()
    assert found["nll"] == pytest.approx(reference.log_loss(y, rows.numpy(), sample_weight=w))
    assert found["auroc"] == pytest.approx(
        reference.roc_auc_score(y == rare, score, sample_weight=w)
    )
    assert found["average_precision"] == pytest.approx(
        reference.average_precision_score(y == rare, score, sample_weight=w)
    )
    assert found["brier"] == pytest.approx(
        2 * reference.brier_score_loss(y == rare, score, sample_weight=w)
    )
    assert found["balanced_error"] == pytest.approx(
        1 - reference.balanced_accuracy_score(y, guess, sample_weight=w)
    )
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(y, guess, sample_weight=w))


def test_a_sample_without_weight_may_be_infinitely_wrong() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    labels, weights = torch.tensor([1, 1, 0]), torch.tensor([0.0, 3.0, 1.0])
    expected = -(3 * math.log(0.75) + math.log(0.5)) / 4
    assert metrics.panel(rows, labels, weights=weights)["nll"] == pytest.approx(expected)
    low, high = metrics.bootstrap_intervals(rows, labels, metrics=["nll"], weights=weights)["nll"]
    assert 0 <= low <= expected <= high < math.inf


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(2), r"weights must have shape \(N\).*found \(2,\) for samples \(3,\)"),
        (torch.tensor([1.0, -0.5, 1.0]), "not negative, found -0.5 in row 1"),
        (torch.tensor([1.0, 1.0, torch.inf]), "found inf in row 2"),
        (torch.zeros(3), "all 3 weights are 0"),
    ],
)
def test_bad_weights_are_refused(weights: Tensor, message: str) -> None:
    rows = torch.full((3, 2), 0.5)
    with pytest.raises(ValueError, match=message):
        metrics.panel(rows, torch.tensor([0, 1, 0]), weights=weights)


@pytest.mark.parametrize(
    "name", ["nll", "brier", "error", "ece", "classwise_ece", "overconfidence", "smooth_ece", "ks"]
)
def test_a_resample_carries_its_weights(name: str) -> None:
    rows, labels, _ = drawn(3)
    weights = torch.rand(200, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    predictions = Predictions.of(rows, labels, weights=weights)
    counts = bootstrap.resample_counts(200, 20, 0)
    values, _ = METRICS[name].resampled(predictions, BINS, counts)
    expected = [
        float(METRICS[name].measure(predictions.reweighted(weights * count), BINS))
        for count in counts
    ]
    # KS is looked for on a mesh, and the bandwidth is that of the sample.
    loose = {"ks": 0.02, "smooth_ece": 0.02}.get(name, 1e-5)
    torch.testing.assert_close(
        values, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=loose
    )
    own, _ = bootstrap.recomputed(METRICS[name], predictions, BINS, counts[:2] * weights)
    torch.testing.assert_close(own, torch.tensor(expected[:2], dtype=torch.float64))


@pytest.mark.parametrize("name", ["auroc", "average_precision", "brier_skill", "balanced_error"])
def test_influences_are_derivatives_by_weight(name: str) -> None:
    rows, labels, _ = drawn(3)
    weights = 0.5 + torch.rand(200, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    predictions, step = Predictions.of(rows, labels, weights=weights), 1e-6
    before = METRICS[name].measure(predictions, BINS)
    for sample in (0, 70, 199):
        more = weights.clone()
        more[sample] *= 1 + step
        slope = (METRICS[name].measure(predictions.reweighted(more), BINS) - before) / step
        counts = torch.ones(1, 200, dtype=torch.float64)
        counts[0, sample] += 1e-3
        moved, _ = METRICS[name].resampled(predictions, BINS, counts)
        assert float(moved[0] - before) == pytest.approx(1e-3 * float(slope), rel=0.02, abs=1e-7)


def test_row_scores_have_the_mean_and_the_spread_of_the_weighted_metric() -> None:
    rows, labels, _ = drawn(3, samples=2000)
    weights = torch.rand(2000, generator=torch.Generator().manual_seed(3), dtype=torch.float64) ** 2
    scores = row_scores(rows, labels, rows.argmax(-1), weights=weights)
    panel = metrics.panel(rows, labels, weights=weights)
    resampled = bootstrap.resampled_metrics(
        Predictions.of(rows, labels, weights=weights), metrics=list(ROW_MEANS), resamples=1000
    )
    for name in ROW_MEANS:
        values = scores.of(name)
        assert values is not None
        assert float(values.mean()) == pytest.approx(panel[name], abs=1e-6)
        error = float(values.std()) / math.sqrt(2000)
        assert error == pytest.approx(float(resampled[name].values.std()), rel=0.12)


def test_the_floor_follows_weights() -> None:
    rows, _, _ = drawn(3, samples=3000)
    half = (torch.arange(3000) % 2).double()
    kept = half > 0
    weighted = metrics.noise_floor(rows, weights=half, draws=400)
    expected = metrics.noise_floor(rows[kept], draws=400)
    assert weighted.mean == pytest.approx(expected.mean, rel=0.1)
    assert metrics.noise_floor(rows, draws=400).mean < 0.85 * weighted.mean


@pytest.mark.parametrize("folds", [1, 5])
def test_refinement_follows_weights(folds: int) -> None:
    rows, labels, _ = drawn(3)
    logits, weights = rows.log(), torch.tensor([2.0, 1.0]).repeat(100)
    found = metrics.nll_decomposition_from_logits(logits, labels, weights=weights, folds=1)
    index = repeated(weights.long())
    expected = metrics.nll_decomposition_from_logits(logits[index], labels[index], folds=1)
    assert [float(part) for part in found] == pytest.approx([float(part) for part in expected])
    halved = metrics.nll_decomposition_from_logits(
        logits, labels, weights=weights * (torch.arange(200) % 7 > 0), folds=folds
    )
    assert math.isfinite(float(halved.refinement))
