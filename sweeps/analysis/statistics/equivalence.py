"""Better, equivalent or worse, beyond or within a region of practical equivalence.

A difference δ within ±r does not matter in practice. The three claims "δ < −r", "|δ| < r" and
"δ > r" each have a one-sided test of the same t distribution: the first and the last against the
edge they lie beyond, the middle one against both (two one-sided tests; Schuirmann, Journal of
Pharmacokinetics and Biopharmaceutics 15, 1987). No two of them can have a p-value below ½.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy import special

from sweeps.analysis.statistics.crossed import Estimate


class Claims(NamedTuple):
    """One number for each claim about a difference; NaN if it cannot be made."""

    below: float
    within: float
    above: float


NO_TESTS = Claims(math.nan, math.nan, math.nan)


def claim_tests(found: Estimate, region: float) -> Claims:
    """The one-sided p-value of each claim; without a region, ``within`` is NaN."""
    if not found.testable:
        return NO_TESTS
    below = _beyond(found, -region)
    above = _beyond(found._replace(mean=-found.mean), -region)
    within = max(1 - below, 1 - above) if region > 0 else math.nan
    return Claims(below, within, above)


def claim_probabilities(found: Estimate, region: float) -> Claims:
    """The same t distribution read as a posterior of δ: how probable each claim is.

    That is the posterior under an uninformative prior, as in Benavoli et al. ("Time for a
    change", JMLR 18, 2017). For display only: verdicts are based on ``claim_tests``.
    """
    if not found.testable:
        return NO_TESTS
    below = 1 - _beyond(found, -region)
    above = 1 - _beyond(found._replace(mean=-found.mean), -region)
    return Claims(below, max(0.0, 1 - below - above), above)


def _beyond(found: Estimate, edge: float) -> float:
    """P(T ≤ (mean − edge) / error): small where the mean lies far below the edge."""
    distance = found.mean - edge
    if found.variance == 0:
        return 0.5 if distance == 0 else float(distance > 0)
    return float(special.stdtr(found.freedom, distance / found.error))
