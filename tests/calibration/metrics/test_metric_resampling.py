"""Bootstrap intervals and the noise floor, checked by brute force and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from calibration import metrics
from calibration.metrics import bootstrap
from calibration.metrics.predictions import Predictions


def overconfident(n: int, generator: torch.Generator, shift: float) -> tuple[Tensor, Tensor]:
    """Confidences in (0.3, 1) whose chance of being correct is ``shift`` lower."""
    confidence = 0.3 + 0.7 * torch.rand(n, generator=generator, dtype=torch.float64)
    chance = (confidence - shift).clamp(min=0)
    return confidence, torch.rand(n, generator=generator) < chance


@pytest.mark.parametrize("shift", [0.0, 0.015, 0.06])
@pytest.mark.parametrize("n", [300, 2000])
def test_intervals_cover_the_true_binned_error(shift: float, n: int) -> None:
    """Both errors are truly ``shift``, for it is the gap of every bin."""
    generator = torch.Generator().manual_seed(n)
    repeats, covered = 150, {"ece": 0, "ace": 0}
    for number in range(repeats):
        pair = overconfident(n, generator, shift)
        found = metrics.bootstrap_intervals(
            *pair, metrics=["ece", "ace"], resamples=200, seed=number
        )
        for name, (low, high) in found.items():
            covered[name] += low <= shift + 1e-12 and shift <= high
    for name, count in covered.items():
        assert count / repeats >= 0.93, name


def test_a_plain_percentile_interval_would_not_do() -> None:
    """It lies above the truth, and above its own estimate: the reason for the correction."""
    generator = torch.Generator().manual_seed(0)
    covered = contained = 0
    for _ in range(40):
        confidence, correct = overconfident(300, generator, 0.0)
        drawn = torch.randint(300, (200, 300), generator=generator)
        low, high = metrics.ece(confidence[drawn], correct[drawn]).quantile(
            torch.tensor([0.025, 0.975], dtype=torch.float64)
        )
        covered += bool(low <= 0)
        contained += bool(low <= metrics.ece(confidence, correct) <= high)
    assert covered == 0
    assert contained < 40


def test_intervals_contain_their_estimates_and_narrow_with_n(draw) -> None:
    widths = []
    for n in (200, 3200):
        probabilities, labels = draw(n, 4)
        found = metrics.bootstrap_intervals(probabilities, labels, resamples=300)
        assert tuple(found) == bootstrap.with_intervals()
        values = metrics.panel(probabilities, labels)
        for name, (low, high) in found.items():
            assert low <= values[name] <= high, name
            assert low < high, name
        widths.append({name: high - low for name, (low, high) in found.items()})
    for name, width in widths[1].items():
        assert width < 0.6 * widths[0][name], name


def test_scores_get_the_normal_interval_of_a_mean(draw) -> None:
    probabilities, labels = draw(4000, 4)
    found = metrics.bootstrap_intervals(
        probabilities, labels, metrics=["nll", "error"], resamples=4000
    )
    losses = {
        "nll": -probabilities.gather(1, labels[:, None]).log().squeeze(1),
        "error": (probabilities.argmax(1) != labels).double(),
    }
    for name, loss in losses.items():
        half = 1.96 * loss.std().item() / math.sqrt(4000)
        expected = (loss.mean().item() - half, loss.mean().item() + half)
        assert found[name] == pytest.approx(expected, abs=0.06 * half)


def test_resampled_statistics_are_the_metrics_of_the_resamples(draw) -> None:
    """Where bins do not move with the resample, the matrix product is the metric itself."""
    probabilities, labels = draw(400, 3)
    rounded = (probabilities * 50).round() / 50  # ties
    confidence, correct = rounded.max(-1).values, rounded.argmax(-1) == labels
    predictions = Predictions.of(confidence, correct)
    counts = bootstrap.resample_counts(400, 6, seed=3)
    assert (counts.sum(1, dtype=torch.long) == 400).all()
    chosen = torch.stack([torch.arange(400).repeat_interleave(row.long()) for row in counts])
    resampled = confidence[chosen], correct[chosen]
    areas = bootstrap.aurc_of_resamples(predictions, counts)
    assert torch.allclose(areas, metrics.aurc(*resampled), atol=1e-12)
    for features, metric in (
        (bootstrap.features.ece_features, metrics.ece),
        (bootstrap.features.ks_features, metrics.ks),
        (bootstrap.features.kuiper_features, metrics.kuiper),
        (bootstrap.features.l2_features, metrics.l2_debiased),
    ):
        summed = features(predictions, 15)
        values = summed.reduce(summed.sums(counts))
        assert torch.allclose(values, metric(*resampled), atol=1e-12), metric.__name__


def test_features_of_the_sample_itself_give_the_metric(draw) -> None:
    probabilities, labels = draw(900, 3, sharpness=3.0)
    predictions = Predictions.of(probabilities, labels)
    once = torch.ones(1, 900, dtype=torch.uint8)
    values = metrics.panel(probabilities, labels)
    tolerances = {"ks": 0.02, "kuiper": 0.02, "smooth_ece": 0.01}
    for name in bootstrap.with_intervals():
        resampled, _ = metrics.METRICS[name].resampled(predictions, 15, once)
        found = resampled.item()
        assert found == pytest.approx(values[name], rel=tolerances.get(name, 1e-11)), name


@pytest.mark.parametrize("bins", [1, 15])
def test_resampled_class_wise_error_is_that_of_the_resamples(draw, bins: int) -> None:
    probabilities, labels = draw(300, 4, dtype=torch.float32)
    counts = bootstrap.resample_counts(300, 5, seed=4)
    predictions = Predictions.of(probabilities, labels)
    values, _ = metrics.METRICS["classwise_ece"].resampled(predictions, bins, counts)
    for row, value in zip(counts, values, strict=True):
        chosen = torch.arange(300).repeat_interleave(row.long())
        expected = metrics.classwise_ece(probabilities[chosen], labels[chosen], bins=bins)
        assert value.item() == pytest.approx(expected.item(), abs=1e-12)


@pytest.mark.parametrize("together", [1, 2, 3])
def test_some_classes_at_a_time_are_resampled_as_all_at_once(
    draw, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of classes on a thousand resamples would take gigabytes."""
    probabilities, labels = draw(300, 5)
    predictions = Predictions.of(probabilities, labels)
    counts = bootstrap.resample_counts(300, 8, seed=0)
    resampled = metrics.METRICS["classwise_ece"].resampled
    values, bias = resampled(predictions, 15, counts)
    monkeypatch.setattr(bootstrap, "CLASSWISE_ELEMENTS", together * 15 * 8)
    in_blocks, bias_of_blocks = resampled(predictions, 15, counts)
    assert bias > 0
    assert torch.allclose(in_blocks, values, rtol=1e-12, atol=0)
    assert torch.allclose(bias_of_blocks, bias, rtol=1e-11, atol=0)


@pytest.mark.parametrize("name", bootstrap.with_intervals())
def test_every_metric_can_be_resampled_by_computing_it_again(draw, name: str) -> None:
    """Exactly so where neither bins nor bandwidths move with the resample, nor is it linear."""
    probabilities, labels = draw(400, 3)
    # The last class is the rarest on every resample.
    kept = ((labels != 2) | (torch.arange(400) % 3 == 0)).nonzero().squeeze(-1)
    predictions = Predictions.of(probabilities[kept], labels[kept])
    counts = bootstrap.resample_counts(len(kept), 4, seed=5)
    metric = metrics.METRICS[name]
    fast, _ = metric.resampled(predictions, 15, counts)
    slow, bias = bootstrap.recomputed(metric, predictions, 15, counts)
    moving = {"ace": 0.25, "smooth_ece": 0.15, "kde_ece": 0.05, "ks": 0.02, "kuiper": 0.02}
    moving |= {"rare_class_ece": 0.4}
    linear = {"auroc": 0.005, "average_precision": 0.03, "brier_skill": 0.02}
    moving |= linear | {"balanced_error": 0.03}
    assert fast.tolist() == pytest.approx(slow.tolist(), rel=moving.get(name, 1e-10))
    assert bias == 0


def test_intervals_repeat_with_the_seed_and_only_then(draw) -> None:
    pair = draw(300, 3)
    first, again, other = (
        metrics.bootstrap_intervals(*pair, resamples=50, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert all(first[name] != other[name] for name in first)


def test_a_lower_level_gives_a_narrower_interval(draw) -> None:
    pair = draw(500, 3)
    wide, narrow = (
        metrics.bootstrap_intervals(*pair, metrics=["brier"], level=level)["brier"]
        for level in (0.95, 0.5)
    )
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_degenerate_samples_have_intervals() -> None:
    one = metrics.bootstrap_intervals([0.7], [True], resamples=20)
    assert one["error"] == (0.0, 0.0)
    assert one["ece"] == pytest.approx((0.3, 0.3))
    saturated = metrics.bootstrap_intervals(np.ones(50), np.ones(50, dtype=bool), resamples=20)
    assert saturated.pop("accuracy") == pytest.approx((1.0, 1.0))
    assert all(interval == (0.0, 0.0) for interval in saturated.values())
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    infinite = metrics.bootstrap_intervals(rows, [0, 1], metrics=["nll"], resamples=20)
    assert infinite["nll"] == (math.inf, math.inf)


def test_metrics_without_interval_are_refused(draw) -> None:
    for name in ("mce", "mmce", "average_ce", "classwise_ace"):
        with pytest.raises(ValueError, match=f"no interval for '{name}'; there are ece, nll"):
            metrics.bootstrap_intervals(*draw(), metrics=[name])
    with pytest.raises(ValueError, match="unknown 'nonsense'"):
        metrics.bootstrap_intervals(*draw(), metrics=["nonsense"])
    with pytest.raises(ValueError, match="'brier' needs probabilities"):
        metrics.bootstrap_intervals([0.5], [True], metrics=["brier"])
    with pytest.raises(ValueError, match="level must be positive and at most 1, found 95"):
        metrics.bootstrap_intervals(*draw(), level=95)
    with pytest.raises(ValueError, match="resamples must be at least 1"):
        metrics.bootstrap_intervals(*draw(), resamples=0)
    with pytest.raises(ValueError, match="one set of predictions at a time"):
        metrics.bootstrap_intervals(*(x[None] for x in draw()))


def test_noise_floor_is_the_ece_of_redrawn_outcomes() -> None:
    generator = torch.Generator().manual_seed(0)
    confidence = 0.5 + 0.5 * torch.rand(1000, generator=generator, dtype=torch.float64)
    redrawn = torch.rand(2000, 1000, generator=generator) < confidence
    values = metrics.ece(confidence.expand(2000, -1), redrawn)
    floor = metrics.noise_floor(confidence, draws=2000)
    assert floor.mean == pytest.approx(values.mean().item(), rel=0.02)
    assert floor.q95 == pytest.approx(values.quantile(0.95).item(), rel=0.03)


def test_noise_floor_of_one_full_bin_is_that_of_a_binomial_mean() -> None:
    floor = metrics.noise_floor(np.full(10_000, 0.95), draws=4000)
    deviation = math.sqrt(0.95 * 0.05 / 10_000)
    assert floor.mean == pytest.approx(math.sqrt(2 / math.pi) * deviation, rel=0.04)
    assert floor.q95 == pytest.approx(1.96 * deviation, rel=0.06)


def test_noise_floor_needs_only_the_top_label(draw) -> None:
    probabilities, _ = draw(300, 3)
    floor = metrics.noise_floor(probabilities, seed=5)
    assert floor == metrics.noise_floor(probabilities.max(-1).values, seed=5)
    assert floor != metrics.noise_floor(probabilities, seed=6)
    assert metrics.noise_floor(torch.ones(10)) == (0.0, 0.0)
    with pytest.raises(ValueError, match=r"found shape \(1, 300, 3\)"):
        metrics.noise_floor(probabilities[None])
    with pytest.raises(ValueError, match="draws must be at least 1"):
        metrics.noise_floor(probabilities, draws=0)


def test_noise_floor_in_blocks_has_the_same_distribution(draw, monkeypatch) -> None:
    probabilities, _ = draw(2000, 3)
    whole = metrics.noise_floor(probabilities, draws=1000)
    monkeypatch.setattr("calibration.metrics.floor._ELEMENTS", 50_000)
    assert metrics.noise_floor(probabilities, draws=1000) == pytest.approx(whole, rel=0.05)
