"""Ensembles of identically configured networks (Lakshminarayanan et al. 2017).

A member's validation rows cannot serve the ensemble: another member may have been trained on
them. So each member is calibrated on its own validation part, and only then are they pooled;
nothing is fitted, measured or chosen on the ensemble's validation predictions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calibration import calibrators
from calibration.evaluation import (
    CalibratorEvaluation,
    LabelledLogits,
    fitted_calibrator,
    floor_of,
    measure,
    predictions_of,
    scores,
)


@dataclass(frozen=True)
class Member:
    """One network's predictions for its own validation rows and for the common test rows."""

    validation: LabelledLogits
    test: LabelledLogits


def pooled(members: Sequence[Tensor]) -> Tensor:
    """The mean of the members' probabilities (N, K): the ensemble's prediction."""
    return torch.stack(list(members)).mean(0)


def evaluate_ensemble(
    calibrator: str, members: Sequence[Member], *, bins: int = 15, seed: int = 0
) -> tuple[CalibratorEvaluation, list[CalibratorEvaluation]]:
    """Evaluate the ensemble of all members, and for each member the ensemble without it.

    The leave-one-out evaluations are for the jackknife: they have test metrics and a noise floor,
    but no intervals. No evaluation has validation metrics. Raises ``ValueError`` if there are fewer
    than two members, if their test labels differ, or if the calibrator gives no probabilities.
    """
    if len(members) < 2:
        raise ValueError(f"an ensemble has at least 2 members, found {len(members)}")
    labels = members[0].test.labels
    if any(not torch.equal(member.test.labels, labels) for member in members):
        raise ValueError("the members of an ensemble must have the same test rows")
    if calibrators.CALIBRATORS[calibrator].top_label:
        raise ValueError(
            f"calibrator {calibrator!r} gives confidences, which cannot be pooled; choose one that "
            "gives probabilities"
        )
    start = time.perf_counter()
    fitted = [fitted_calibrator(calibrator, member.validation) for member in members]
    fit_seconds = time.perf_counter() - start
    outputs = [fit(member.test.logits) for fit, member in zip(fitted, members, strict=True)]
    whole = pooled(outputs)
    first = members[0].test
    test = LabelledLogits(whole, labels, groups=first.groups, weights=first.weights)
    measured, intervals, floor = measure(predictions_of(whole, test), test, bins=bins, seed=seed)
    converged = all(fit.converged for fit in fitted)
    found = CalibratorEvaluation(measured, intervals, floor, {}, converged, fit_seconds)
    others = [
        _measured(pooled(outputs[:left_out] + outputs[left_out + 1 :]), test, bins, seed)
        for left_out in range(len(members))
    ]
    return found, others


def _measured(output: Tensor, test: LabelledLogits, bins: int, seed: int) -> CalibratorEvaluation:
    predictions = predictions_of(output, test)
    floor = floor_of(predictions, test, bins=bins, seed=seed)
    return CalibratorEvaluation(scores(predictions, bins=bins), {}, floor, {})
