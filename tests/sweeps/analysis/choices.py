"""What the simplest within noise costs beside the lowest mean: both chosen, both tested.

A sweep of five seeds is drawn from more of them, simulated or recorded. The rule and the lowest
mean validation NLL choose from those five, and the test NLL of both choices is that of the
seeds that were not drawn: what new data would give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from sweeps.analysis.selection import CANDIDATE, select


class Cost(NamedTuple):
    """Test NLL of the simplest minus that of the lowest mean, over ``sweeps``.

    ``changed`` is the share of sweeps in which they differ, ``error`` the standard error of
    ``difference`` over sweeps that are not independent where they share seeds.
    """

    difference: float
    error: float
    changed: float
    sweeps: int

    @property
    def upper(self) -> float:
        """What the difference is below with 95 % confidence."""
        return self.difference + 1.645 * self.error


def cost(
    tidy: pd.DataFrame,
    complexities: Mapping[str, int],
    ratio: float,
    rng: np.random.Generator,
    *,
    sweeps: int,
    seeds: int = 5,
) -> Cost:
    """The cost of the rule on one dataset of which ``tidy`` has more seeds than a sweep."""
    (dataset,) = tidy["dataset"].unique()
    differences = []
    for _ in range(sweeps):
        drawn = rng.choice(tidy["seed"].unique(), seeds, replace=False)
        seen = tidy["seed"].isin(drawn)
        found = select(tidy[seen], complexities, {dataset: ratio})
        new = tidy[~seen].groupby(CANDIDATE)["nll"].mean()
        simplest, lowest = found.winners[dataset], found.best[dataset]
        if simplest == lowest:  # also where both are infinite
            differences.append(0.0)
        else:
            differences.append(new[dataset, *simplest] - new[dataset, *lowest])
    spread = float(np.std(differences, ddof=1)) / math.sqrt(sweeps)
    return Cost(
        float(np.mean(differences)), spread, float(np.mean(np.abs(differences) > 0)), sweeps
    )
