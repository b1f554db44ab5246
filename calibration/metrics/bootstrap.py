"""Bootstrap intervals of the metrics, all resamples at once.

A resample of N samples is a row of counts, so that a sum over the samples is one matrix product
for all resamples. If samples belong to groups, whole groups are drawn: a resample then has the
original number of groups, and more or fewer samples than N.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from scipy import special
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
FLOAT_ELEMENTS = 2**22
CLASSWISE_ELEMENTS = 2**24
"""Gaps of class-wise ECE resampled at a time: 1118 classes with 15 bins, 1000 times."""
FEW_GROUPS = 30
"""With fewer groups, intervals use Student's t, which the report mentions."""


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
    groups: Tensor | None = None,
    weights: Tensor | None = None,
) -> dict[str, tuple[float, float]]:
    """Intervals (low, high) that contain the estimate, of every metric or those named.

    With d the resampled values' deviations from their mean, the interval for the true value is

        low = estimate - bias + q_low(d),  high = estimate + q_high(d).

    For scores the bias is 0: this is the percentile interval, shifted so that the resamples' mean
    is the estimate. Calibration errors are norms of noisy gaps, and noise increases a norm, in the
    sample relative to the truth and again in the resamples relative to the sample: there, bias is
    the mean increase caused by resampling noise in gaps shrunk towards 0 by two standard errors.
    Every rule needs such a margin: the bias cannot be estimated well where gaps and noise are of
    similar size (Cai & Low 2011). The true value is the error of the same bins (same bandwidth)
    at infinite N.

    With ``groups`` (N), an integer for each sample, groups are resampled, and the interval is for
    new groups. The deviations d of G groups are slightly too small; they are widened by
    sqrt(G / (G - 1)) and by the ratio of Student's t with G - 1 degrees of freedom to the normal
    quantile (Hesterberg 2015). Below ``FEW_GROUPS`` groups the quantiles of d are themselves too
    uncertain, and are replaced by t times its standard deviation. ``weights`` (N) belong to the
    samples and are drawn with them.

    Memory: ``resamples`` · N bytes, but at least 32 MB, and up to five times as much with
    weights; for class-wise ECE a few copies of ``resamples`` · K · bins numbers, but at most of
    2**24 (128 MB). Raises ``ValueError`` on malformed input, unknown metrics, and metrics that
    have no interval or need rows that are not given.
    """
    check_positive(level, "level", most=1)
    found = resampled_metrics(
        Predictions.of(probabilities, labels, weights=weights),
        metrics=metrics,
        bins=bins,
        resamples=resamples,
        seed=seed,
        groups=groups,
    )
    return intervals_of(found, groups, level)


def intervals_of(
    found: Mapping[str, Resampled], groups: Tensor | None, level: float = 0.95
) -> dict[str, tuple[float, float]]:
    """The interval of each metric from its values on resamples of the rows or groups."""
    number = None if groups is None else len(groups.unique())
    return {name: interval_of(name, resampled, level, number) for name, resampled in found.items()}


class Resampled(NamedTuple):
    """A metric's estimate, its values (R) on the resamples, and the bias of both (or 0)."""

    estimate: Tensor
    values: Tensor
    bias: Tensor


@torch.no_grad()
def resampled_metrics(
    predictions: Predictions,
    *,
    metrics: Sequence[str] | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    groups: Tensor | None = None,
) -> dict[str, Resampled]:
    """Each metric, by default all with an interval, on resamples of the samples or groups.

    The resamples depend only on N, the groups, their number and the seed, so that the values of
    two sets of predictions for the same samples are paired. Raises like ``bootstrap_intervals``.
    """
    check_unbatched(predictions, "bootstrap_intervals")
    number = check_count(bins, "bins")
    names = _names(metrics, predictions)
    counts = resample_counts(
        len(predictions.confidence), check_count(resamples, "resamples"), seed, groups
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


def interval_of(
    name: str, resampled: Resampled, level: float = 0.95, groups: int | None = None
) -> tuple[float, float]:
    """The interval of ``bootstrap_intervals`` from a metric's values on resamples.

    ``groups`` is the number of groups that were resampled, None for single samples. One group
    gives no information: the interval is then the metric's whole range.
    """
    estimate, values, bias = resampled
    if not estimate.isfinite():
        return float(estimate), float(estimate)
    metric = METRICS[name]
    if groups is not None and groups < 2:
        return metric.bounds
    low, high = deviations(values, level, groups)
    # Few resamples may all be on one side of the rounding error of their mean.
    lower, upper = estimate - bias + low.clamp(max=0), estimate + high.clamp(min=0)
    return metric.clipped(float(lower)), metric.clipped(float(upper))


def deviations(
    values: Tensor, level: float = 0.95, groups: int | None = None
) -> tuple[Tensor, Tensor]:
    """How far a value on resamples (R) deviates below and above its mean, with this probability.

    If ``groups`` were resampled, at least two, the deviations are those for new groups.
    """
    tail = (1 - level) / 2
    low, high = (values - values.mean()).quantile(values.new_tensor([tail, 1 - tail]))
    if groups is None:
        return low, high
    student = float(special.stdtrit(groups - 1, 1 - tail)) * math.sqrt(groups / (groups - 1))
    if groups < FEW_GROUPS:
        high = student * values.std(correction=0)
        return -high, high
    wider = student / float(special.ndtri(1 - tail))
    return wider * low, wider * high


# --- how each metric is resampled


def recomputed(
    metric: Metric, predictions: Predictions, bins: int, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Any metric, recomputed on every resample; as slow as computing it that many times."""
    if predictions.weights is not None:
        values = [metric.measure(predictions.reweighted(count), bins) for count in counts]
    else:
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
        found = losses(predictions)
        if predictions.weights is not None:  # values without weight may be infinite
            found = found.masked_fill(predictions.weights == 0, 0)
        summed = features.mean_of(found)
        values = summed.reduce(summed.sums(counts) * _scale(counts))
        return values, torch.zeros_like(values[0])

    return resample


def norm_resample(make: Callable[[Predictions, int], Summed], *, biased: bool = True) -> Resample:
    """A calibration error: a norm of sums of gaps, which noise increases unless it is debiased."""

    def resample(
        metric: Metric, predictions: Predictions, bins: int, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        summed = make(predictions, bins)
        if biased:
            values, bias = _norm(summed, predictions, counts)
            return values, bias.clamp(min=0)
        # A debiased square divides by the counts that it is given.
        values = summed.reduce(summed.sums(counts))
        return values, torch.zeros_like(values[0])

    return resample


def resampled_classwise_ece(
    metric: Metric, predictions: Predictions, bins: int, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """A sum over classes, resampling as many of them at a time as the memory limit allows."""
    together = max(1, CLASSWISE_ELEMENTS // (bins * len(counts)))
    blocks = features.classwise_ece_features(predictions, bins, together)
    values, biases = zip(*(_norm(block, predictions, counts) for block in blocks), strict=True)
    return torch.stack(values).sum(0), torch.stack(biases).sum().clamp(min=0)


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
resampled_ks = norm_resample(features.ks_features)
resampled_kuiper = norm_resample(features.kuiper_features)
resampled_smooth_ece = norm_resample(features.smooth_features)
resampled_kde_ece = norm_resample(kde_features)
resampled_l2_debiased = norm_resample(features.l2_features, biased=False)


def _norm(summed: Summed, predictions: Predictions, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The norm on every resample (R), and its mean increase by resampling noise.

    The increase is that around gaps shrunk by NOISE_WIDTH standard errors.
    """
    sums = summed.sums(counts) * _scale(counts)
    values = summed.reduce(sums)
    weights = predictions.weights
    once = counts.new_ones(counts.shape[1]) if weights is None else weights
    observed = summed.sums(once[None])
    noise = sums - sums.mean(0)
    error = noise.square().mean(0).sqrt()
    shrunk = observed.sign() * (observed.abs() - NOISE_WIDTH * error).clamp(min=0)
    return values, summed.reduce(shrunk + noise).mean() - summed.reduce(shrunk)[0]


def _scale(counts: Tensor) -> Tensor:
    """The factor from sums over N samples, divided by N, to means of the resamples (R, 1).

    Exactly 1 unless groups of different sizes are resampled, or samples with weights.
    """
    total = counts.sum(-1, keepdim=True).double()
    # A resample may, with a small probability, have no weight at all: its sums are 0.
    return counts.shape[1] / total.clamp(min=torch.finfo(torch.float32).tiny)


def resample_counts(
    samples: int, resamples: int, seed: int, groups: Tensor | None = None
) -> Tensor:
    """How often each resample (rows) contains each sample (columns); not to be modified.

    With ``groups`` (N), whole groups are drawn, as many as there are. The last result is cached:
    predictions of the same samples by several calibrators share it. Counts are float64, as
    needed for products with features, or uint8 if there are too many.
    """
    if groups is not None:
        present, member = groups.cpu().unique(return_inverse=True)
        drawn = resample_counts(len(present), resamples, seed)
        few = resamples * len(member) <= FLOAT_ELEMENTS
        return (drawn if few else drawn.to(torch.uint8))[:, member]
    large = samples * resamples > KEPT_ELEMENTS
    return (_drawn_counts.__wrapped__ if large else _drawn_counts)(samples, resamples, seed)


@lru_cache(maxsize=1)
def _drawn_counts(samples: int, resamples: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    few = samples * resamples <= FLOAT_ELEMENTS
    counts = torch.empty(resamples, samples, dtype=torch.float64 if few else torch.uint8)
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
    most = int(counts.sum(-1).max())
    order = predictions.confidence.argsort(descending=True)
    level = predictions.confidence[order]
    last = torch.cat([level[1:] != level[:-1], level.new_ones(1, dtype=torch.bool)])
    wrong = (~predictions.correct)[order].double()
    harmonic = level.new_zeros(most + 1)
    harmonic[1:] = torch.arange(1, most + 1, device=level.device).double().reciprocal().cumsum(0)
    values = []
    for part in counts.split(max(1, RESAMPLED_ELEMENTS // samples)):
        drawn = part[:, order].double()
        rank, errors = ((drawn * weight).cumsum(-1)[:, last] for weight in (1.0, wrong))
        count, growth = (x.diff(dim=-1, prepend=x.new_zeros(len(x), 1)) for x in (rank, errors))
        slope = growth / count.clamp(min=1)
        harmonics = harmonic[rank.long()].diff(dim=-1, prepend=rank.new_zeros(len(rank), 1))
        values.append((growth + (errors - slope * rank) * harmonics).sum(-1) / rank[:, -1])
    return torch.cat(values)
