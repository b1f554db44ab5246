"""The descriptor of a metric, from which every list of metrics is derived.

Nothing here needs torch: a descriptor names its functions by import path and loads them when
they are first needed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from calibration.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from calibration.metrics.predictions import Predictions

    Compute: TypeAlias = Callable[..., Tensor]
    Resample: TypeAlias = Callable[["Metric", Predictions, int, Tensor], tuple[Tensor, Tensor]]

Unit = Literal["share", "nats", "score", "count"]
Direction = Literal["minimize", "maximize", "none"]
Needs = Literal["confidence", "rows", "posterior"]
RECOMPUTED = "calibration.metrics.bootstrap:recomputed"
"""The interval of any metric, recomputed on every resample."""


class Shown(IntEnum):
    """The first of these places that shows a metric by default; all later ones show it, too."""

    HEADLINE = 0
    """The terminal, and the summary of a nightly run."""
    LEADERBOARD = 1
    """Compared with the baseline, plotted with intervals, and in MLflow's tables and views."""
    DETAIL = 2
    """With a bootstrap interval for every trial: ``calsweep show``, the model card."""
    FURTHER = 3
    """The additional columns of a page's leaderboard."""
    FILE = 4
    """CSV files and MLflow's metrics."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A scalar metric of a set of predictions.

    ``compute`` takes ``Predictions`` and, if the metric is ``binned``, the number of bins; it
    returns a float64 scalar. It is a function or its import path, as is ``resample``, which
    computes the bootstrap interval (None: there is none). ``bounds`` are the range of values,
    to which intervals are clipped. ``needs`` says for which predictions it can be computed:
    all with a confidence, those with whole rows of probabilities, or those whose true
    posterior is known. ``curve`` adds it to the validation curves; with ``on_demand`` it is
    computed there only if a setting requests it. Increase ``version`` when the function changes
    a value; stored predictions are then re-evaluated.

    ``region`` is the half-width of practical equivalence, in the metric's unit: a difference
    within ±region is of no consequence, and only a larger one is called better or worse. None:
    any difference counts, and nothing is called equivalent. The catalogue gives the reason for
    every region; a spec may set its own (``equivalence``).

    ``weighted`` means that it follows the rows' weights, if any: scaling all of them changes
    nothing, and integer weights are equivalent to repeated rows (for equal-mass bins if the
    number of bins divides their sum, for ``refinement`` without cross-fitting; ``mce_count``
    counts a row once). A metric that depends on the number of rows cannot satisfy both; it is
    computed without the weights, and reports mark it.
    """

    name: str
    title: str
    description: str
    compute: Compute | str
    resample: Resample | str | None = RECOMPUTED
    unit: Unit = "share"
    direction: Direction = "minimize"
    bounds: tuple[float, float] = (0.0, 1.0)
    binned: bool = False
    needs: Needs = "confidence"
    shown: Shown = Shown.FILE
    curve: bool = False
    on_demand: bool = False
    region: float | None = None
    weighted: bool = False
    version: int = 1

    def __post_init__(self) -> None:
        low, high = self.bounds
        if not low < high:
            raise ValueError(
                f"metric {self.name!r}: bounds: found {self.bounds}; write (low, high)"
            )
        if self.region is not None and not 0 < self.region < math.inf:
            raise ValueError(
                f"metric {self.name!r}: region: found {self.region}; write a positive half-width, "
                "or None"
            )

    def measure(self, predictions: Predictions, bins: int) -> Tensor:
        """The value for these predictions, weighted if it is ``weighted`` and they have weights."""
        predictions = self._seen(predictions)
        return self._compute(predictions, bins) if self.binned else self._compute(predictions)

    def resampled(
        self, predictions: Predictions, bins: int, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The values (R) on resamples given by their counts (R, N), and the bias of each."""
        assert self._resample is not None, "only metrics with an interval are resampled"
        predictions = self._seen(predictions)
        if predictions.weights is not None:
            counts = counts * predictions.weights.float()
        return self._resample(self, predictions, bins, counts)

    def _seen(self, predictions: Predictions) -> Predictions:
        if self.weighted or predictions.weights is None:
            return predictions
        return predictions.reweighted(None)

    @cached_property
    def _compute(self) -> Compute:
        return _imported(self.compute)

    @cached_property
    def _resample(self) -> Resample | None:
        return None if self.resample is None else _imported(self.resample)

    @property
    def has_interval(self) -> bool:
        """Whether it has a bootstrap interval."""
        return self.resample is not None

    def clipped(self, value: float) -> float:
        """The value, or the bound that it exceeds."""
        low, high = self.bounds
        return value if math.isnan(value) else min(max(value, low), high)

    def better(self, one: float, other: float) -> bool:
        """Whether the first value is the better one."""
        return one > other if self.direction == "maximize" else one < other


class Metrics(Registry[Metric]):
    """The registered metrics, in the order in which tables show them."""

    def register(self, name: str) -> Callable[[Metric], Metric]:
        """Decorate a descriptor, registered under its own name."""
        add = super().register(name)

        def checked(metric: Metric) -> Metric:
            if metric.name != name:
                raise ValueError(f"the metric {metric.name!r} is registered as {name!r}")
            return add(metric)

        return checked

    def names(self, shown: Shown = Shown.FILE, *, needs: Needs = "posterior") -> tuple[str, ...]:
        """The metrics shown at a place that need no more than ``needs``."""
        order: tuple[Needs, ...] = ("confidence", "rows", "posterior")
        known = order[: order.index(needs) + 1]
        return tuple(
            name
            for name, metric in self.items()
            if metric.shown <= shown and metric.needs in known and not metric.on_demand
        )

    def curve(self) -> tuple[str, ...]:
        """The metrics of every validation curve."""
        listed = self.items()
        return tuple(name for name, metric in listed if metric.curve and not metric.on_demand)

    def objectives(self) -> tuple[str, ...]:
        """The metrics that a search can optimise: those that a validation curve can contain."""
        listed = self.items()
        return tuple(n for n, metric in listed if metric.curve and metric.direction != "none")

    def title(self, name: str) -> str:
        """The heading of a column of results; a column that is not a metric has its own name."""
        return self[name].title if name in self else name


def _imported(what: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(what, str):
        return what
    module, _, name = what.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
