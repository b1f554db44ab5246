"""Bootstrap intervals of the metrics, all resamples at once.

A resample of N samples is a row of counts, so that a sum over the samples is one matrix product
for all resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from calibration.metrics import bootstrap_features as features
from calibration.metrics.bootstrap_features import RESAMPLED_ELEMENTS, Summed
from calibration.metrics.catalogue import METRICS
from calibration.metrics.checks import Data, check_count, check_positive
from calibration.metrics.kde import kde_features
from calibration.metrics.metric import Metric
from calibration.metrics.panels import check_names, check_unbatched
from calibration.metrics.predictions import Predictions
from calibration.metrics.proper_scores import brier_losses, nll_losses

if TYPE_CHECKING:
    from calibration.metrics.metric import Resample

# Gaps within this many standard errors of 0 count as noise when the bias is estimated.
NOISE_WIDTH = 2.0
KEPT_ELEMENTS = 2**26


@torch.no_grad()
def bootstrap_intervals(
    probabilities: Data,
    labels: Data,
    *,
    metrics: Sequence[str] | None = None,
    bins: int = 15,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Intervals (low, high) that contain the estimate, of every metric or those named.

    Scores get the percentile interval. Calibration errors are norms of noisy gaps, and noise
    raises a norm, in the sample over the truth and again in the resamples over the sample. With
    d the resampled values' deviations from their mean, the interval for the true value is

        low = estimate - bias + q_low(d),  high = estimate + q_high(d),

    where bias is the mean rise that the resampling noise causes in gaps shrunk towards 0 by two
    standard errors. No rule can do without such a margin: the bias cannot be estimated well
    where gaps and noise are alike (Cai & Low 2011). The truth meant is the error of the same
    bins (same bandwidth) at infinite N.

    Memory: ``resamples`` · N bytes. Raises ``ValueError`` on malformed input, unknown metrics,
    and metrics that have no interval or need rows where there are none.
    """
    check_positive(level, "level", most=1)
    found = resampled_metrics(
        probabilities, labels, metrics=metrics, bins=bins, resamples=resamples, seed=seed
    )
    return {name: interval_of(name, resampled, level) for name, resampled in found.items()}


class Resampled(NamedTuple):
    """A metric's estimate, its values (R) on the resamples, and the bias of both (or 0)."""

    estimate: Tensor
    values: Tensor
    bias: Tensor


@torch.no_grad()
def resampled_metrics(
    probabilities: Data,
    labels: Data,
    *,
    metrics: Sequence[str] | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Resampled]:
    """Each metric, by default all that have an interval, on resamples of the samples.

    The resamples depend on N, their number and the seed alone, so that values of two sets of
    predictions of the same samples are paired. Raises as ``bootstrap_intervals`` does.
    """
    predictions = Predictions.of(probabilities, labels)
    check_unbatched(predictions, "bootstrap_intervals")
    number = check_count(bins, "bins")
    names = _names(metrics, predictions)
    counts = resample_counts(
        len(predictions.confidence), check_count(resamples, "resamples"), seed
    ).to(predictions.confidence.device)
    return {name: _resampled(name, predictions, number, counts) for name in names}


def with_intervals() -> tuple[str, ...]:
    """The metrics that have a bootstrap interval."""
    return tuple(name for name, metric in METRICS.items() if metric.has_interval)


def _names(metrics: Sequence[str] | None, predictions: Predictions) -> Sequence[str]:
    there = with_intervals()
    if metrics is None:
        possible = METRICS.names(needs=predictions.known)
        return [name for name in there if name in possible]
    check_names(metrics, predictions)
    for name in metrics:
        if name not in there:
            raise ValueError(f"metrics: no interval for {name!r}; there are {', '.join(there)}")
    return metrics


def _resampled(name: str, predictions: Predictions, bins: int, counts: Tensor) -> Resampled:
    metric = METRICS[name]
    estimate = metric.measure(predictions, bins)
    if not estimate.isfinite():
        return Resampled(estimate, estimate.expand(len(counts)), torch.zeros_like(estimate))
    return Resampled(estimate, *metric.resampled(predictions, bins, counts))


def interval_of(name: str, resampled: Resampled, level: float = 0.95) -> tuple[float, float]:
    """The interval of ``bootstrap_intervals`` from a metric's values on resamples."""
    estimate, values, bias = resampled
    tail = (1 - level) / 2
    if not estimate.isfinite():
        return float(estimate), float(estimate)
    low, high = (values - values.mean()).quantile(values.new_tensor([tail, 1 - tail]))
    # Few resamples may all lie on one side of their mean's rounding error.
    lower, upper = estimate - bias + low.clamp(max=0), estimate + high.clamp(min=0)
    metric = METRICS[name]
    return metric.clipped(float(lower)), metric.clipped(float(upper))


# --- how each metric is resampled


def recomputed(
    metric: Metric, predictions: Predictions, bins: int, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Any metric, computed again on every resample: as slow as that many computations."""
    numbers = torch.arange(counts.shape[1], device=counts.device)
    values = [
        metric.measure(predictions.take(numbers.repeat_interleave(count.long())), bins)
        for count in counts
    ]
    resampled = torch.stack(values).double()
    return resampled, torch.zeros_like(resampled[0])


def mean_resample(losses: Callable[[Predictions], Tensor]) -> Resample:
    """A score: the mean of one number per sample."""

    def resample(
        metric: Metric, predictions: Predictions, bins: int, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        summed = features.mean_of(losses(predictions))
        values = summed.reduce(summed.sums(counts))
        return values, torch.zeros_like(values[0])

    return resample


def norm_resample(make: Callable[[Predictions, int], Summed], *, biased: bool = True) -> Resample:
    """A calibration error: a norm of sums of gaps, which noise raises unless it is debiased."""

    def resample(
        metric: Metric, predictions: Predictions, bins: int, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        summed = make(predictions, bins)
        sums = summed.sums(counts)
        values = summed.reduce(sums)
        return values, _bias(summed, sums, counts) if biased else torch.zeros_like(values[0])

    return resample


def resampled_aurc(
    metric: Metric, predictions: Predictions, bins: int, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Area under the risk-coverage curve."""
    values = aurc_of_resamples(predictions, counts)
    return values, torch.zeros_like(values[0])


resampled_error = mean_resample(lambda predictions: (~predictions.correct).double())
resampled_accuracy = mean_resample(lambda predictions: predictions.correct.double())
resampled_nll = mean_resample(nll_losses)
resampled_brier = mean_resample(brier_losses)
resampled_ece = norm_resample(features.ece_features)
resampled_ace = norm_resample(features.ace_features)
resampled_classwise_ece = norm_resample(features.classwise_ece_features)
resampled_ks = norm_resample(features.ks_features)
resampled_kuiper = norm_resample(features.kuiper_features)
resampled_smooth_ece = norm_resample(features.smooth_features)
resampled_kde_ece = norm_resample(kde_features)
resampled_l2_debiased = norm_resample(features.l2_features, biased=False)


def _bias(summed: Summed, sums: Tensor, counts: Tensor) -> Tensor:
    """Mean rise of the norm by resampling noise, around gaps shrunk by NOISE_WIDTH errors."""
    once = counts.new_ones(1, counts.shape[1])
    observed = summed.sums(once)
    noise = sums - sums.mean(0)
    error = noise.square().mean(0).sqrt()
    shrunk = observed.sign() * (observed.abs() - NOISE_WIDTH * error).clamp(min=0)
    return (summed.reduce(shrunk + noise).mean() - summed.reduce(shrunk)[0]).clamp(min=0)


def resample_counts(samples: int, resamples: int, seed: int) -> Tensor:
    """How often each resample (rows) contains each sample (columns), uint8; not to be changed.

    The last are kept: predictions of the same samples by several calibrators share them.
    """
    large = samples * resamples > KEPT_ELEMENTS
    return (_drawn_counts.__wrapped__ if large else _drawn_counts)(samples, resamples, seed)


@lru_cache(maxsize=1)
def _drawn_counts(samples: int, resamples: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.empty(resamples, samples, dtype=torch.uint8)
    step = max(1, RESAMPLED_ELEMENTS // samples)
    for start in range(0, resamples, step):
        part = counts[start : start + step]
        drawn = torch.randint(samples, part.shape, generator=generator)
        drawn += torch.arange(len(part))[:, None] * samples
        part.copy_(torch.bincount(drawn.view(-1), minlength=part.numel()).view_as(part))
    return counts


def aurc_of_resamples(predictions: Predictions, counts: Tensor) -> Tensor:
    """Area under the risk-coverage curve of every resample (R).

    Repeated samples are ties. Within a tied group from rank s to e the errors grow linearly, by
    a each, so that Σ_r errors(r)/r = a(e-s) + (errors(s) - a·s)(H(e) - H(s)), H(n) = Σ_{r<=n} 1/r.
    """
    samples = counts.shape[1]
    order = predictions.confidence.argsort(descending=True)
    level = predictions.confidence[order]
    last = torch.cat([level[1:] != level[:-1], level.new_ones(1, dtype=torch.bool)])
    wrong = (~predictions.correct)[order].double()
    harmonic = level.new_zeros(samples + 1)
    harmonic[1:] = torch.arange(1, samples + 1, device=level.device).double().reciprocal().cumsum(0)
    values = []
    for part in counts.split(max(1, RESAMPLED_ELEMENTS // samples)):
        drawn = part[:, order].double()
        rank, errors = ((drawn * weight).cumsum(-1)[:, last] for weight in (1.0, wrong))
        count, growth = (x.diff(dim=-1, prepend=x.new_zeros(len(x), 1)) for x in (rank, errors))
        slope = growth / count.clamp(min=1)
        harmonics = harmonic[rank.long()].diff(dim=-1, prepend=rank.new_zeros(len(rank), 1))
        values.append((growth + (errors - slope * rank) * harmonics).sum(-1) / samples)
    return torch.cat(values)
