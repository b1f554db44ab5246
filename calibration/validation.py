"""Evaluate one network, or many at once, on validation rows after an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from calibration import metrics
from calibration.data import Part
from calibration.metrics import METRICS
from calibration.models import Output
from calibration.row_weights import mean_one


class Measured(NamedTuple):
    """The network's output, the logits that its method derives from it, and their metrics.

    ``row`` is empty if a logit is infinite or NaN.
    """

    output: Output
    logits: Tensor
    row: dict[str, float]


def measured(part: Part, output: Output, logits: Tensor, *, refinement: bool) -> Measured:
    """The metrics of a validation curve, including ``refinement`` if training stops on it."""
    finite = bool(logits.isfinite().all())
    row = measured_on(part, logits, refinement=refinement) if finite else {}
    return Measured(output, logits, row)


def measured_together(
    parts: Sequence[Part], outputs: Sequence[Output], logits: Sequence[Tensor], *, refinement: bool
) -> list[Measured]:
    """``measured`` for networks with equally many rows and classes, in one pass over the logits."""
    given = list(zip(parts, outputs, logits, strict=True))
    if any(part.weights is not None for part in parts):  # weighted metrics are not batched
        return [measured(*one, refinement=refinement) for one in given]
    finite = torch.stack(list(logits)).isfinite().all(-1).all(-1).tolist()
    places = [place for place, all_finite in enumerate(finite) if all_finite]
    rows: list[dict[str, float]] = [{} for _ in given]
    if places:
        wide = torch.stack([logits[place] for place in places]).double()
        labels = torch.stack([parts[place].labels for place in places])
        found = metrics.panel_of_each(wide.softmax(-1), labels, metrics=METRICS.curve())
        losses = map(F.nll_loss, wide.log_softmax(-1), labels)
        for place, row, loss in zip(places, found, losses, strict=True):
            rows[place] = row | {"nll": float(loss)}
            if refinement:
                rows[place]["refinement"] = _refinement(parts[place], logits[place])
    return [Measured(*one) for one in zip(outputs, logits, rows, strict=True)]


def measured_on(part: Part, logits: Tensor, *, refinement: bool) -> dict[str, float]:
    """The metrics of a validation curve for finite logits of a part's rows, weighted."""
    labels, weights = part.labels, part.weights
    row = metrics.panel(
        logits.double().softmax(-1), labels, metrics=METRICS.curve(), weights=weights
    )
    if weights is None:
        row["nll"] = float(F.cross_entropy(logits.double(), labels))
    else:
        losses = F.cross_entropy(logits.double(), labels, reduction="none")
        row["nll"] = float(mean_one(weights) @ losses.cpu()) / len(losses)
    if refinement:
        row["refinement"] = _refinement(part, logits)
    return row


def _refinement(part: Part, logits: Tensor) -> float:
    found = metrics.nll_decomposition_from_logits(logits, part.labels, weights=part.weights)
    return float(found.refinement)
