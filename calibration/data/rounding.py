"""Probabilities written with few digits, and what they may have been before rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_PROBABILITY = 1e-12
SUM_TOLERANCE = 2.0**-8
"""A softmax rounded to bfloat16 (8 significant bits) has a sum that is off 1 by up to this."""
MOST_OFF = 0.1
"""A sum of rounded probabilities that is off 1 by more is an error, however many there are."""
MOST_DECIMALS = 6
MOST_DECIMALS_FLOAT32 = 4
"""More decimals are within the rounding of a float32 itself."""


class Rounding(NamedTuple):
    """Probabilities are multiples of 10**-decimals; None if they are not known to be rounded."""

    decimals: int | None

    @property
    def half_unit(self) -> float:
        """The largest number that rounds to 0."""
        assert self.decimals is not None, "asked of rounded probabilities only"
        return float(0.5 * 10.0**-self.decimals)

    def tolerance(self, classes: int) -> float:
        """How far a row's sum may be from 1: each probability is off by at most half a unit."""
        if self.decimals is None:
            return SUM_TOLERANCE
        return max(SUM_TOLERANCE, min(MOST_OFF, classes * self.half_unit + 1e-9))


def rounding_of(probabilities: NDArray[Any]) -> Rounding:
    """The number of decimals to which all probabilities are rounded, if it is small.

    Predictions that are all 0 or 1 are not considered rounded: nothing shows to how many.
    """
    most = MOST_DECIMALS_FLOAT32 if probabilities.dtype == np.float32 else MOST_DECIMALS
    values = np.asarray(probabilities, dtype=np.float64)
    precision = 1e-7 if probabilities.dtype == np.float32 else 1e-14
    for decimals in range(most + 1):
        scaled = values * 10**decimals
        if (np.abs(scaled - np.rint(scaled)) <= precision * 10**decimals + 1e-12).all():
            return Rounding(decimals or None)
    return Rounding(None)


def logarithms(probabilities: NDArray[Any], path: object) -> tuple[NDArray[np.float64], list[str]]:
    """log p in float64, and notes on what was changed for it.

    A 0 has no logarithm. If probabilities are rounded it counts as half the rounding unit,
    otherwise as the smallest positive value in the file or 1e-12, whichever is smaller. Rows
    that do not sum to 1 because of rounding are rescaled, as the softmax of logits does.
    """
    values = np.asarray(probabilities, dtype=np.float64)
    rounding = rounding_of(probabilities)
    zeros = values == 0
    number = int(zeros.sum())
    notes = []
    if rounding.decimals is None:
        least = min(LEAST_PROBABILITY, float(values[~zeros].min()))
        if number:
            notes.append(
                f"{path}: {number} probabilities of 0, which has no logarithm, count as "
                f"{least:.2g}; stored logits, or more digits, would tell them apart"
            )
        return np.log(np.maximum(values, least)), notes
    off = int((np.abs(values.sum(1) - 1) > 1e-9).sum())
    changes = []
    if number:
        changes.append(f"{number} of them read 0 and count as {rounding.half_unit:g}")
    if off:
        changes.append(f"{off} rows that do not sum to 1 are scaled to it")
    if changes:
        places = f"{rounding.decimals} decimal{'s' if rounding.decimals > 1 else ''}"
        notes.append(f"{path}: probabilities are rounded to {places}: {', and '.join(changes)}")
    return np.log(np.maximum(values, rounding.half_unit)), notes
