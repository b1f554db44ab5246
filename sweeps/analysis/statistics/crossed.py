"""The mean of paired differences, with the randomness of both seeds *and* test rows.

Every seed's networks are measured on the same test rows: n seeds are crossed with m rows. With
d_si = δ + α_s + β_i + γ_si, the mean over both has the variance σα²/n + σβ²/m + σγ²/(nm) if new
seeds and new rows are drawn. The two-way mean squares have the expectations

    E MS_seed = m σα² + σγ²,  E MS_row = n σβ² + σγ²,  E MS_interaction = σγ²,

so that (MS_seed + MS_row − MS_interaction) / (nm) estimates it without bias (Cornfield and Tukey,
Annals of Mathematical Statistics 27, 1956). If each seed draws its own test rows, these are
nested in it, and the spread over seeds includes everything.

The degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946), V² / Σ (term² / freedom of
the term), with one precaution. A few seeds that agree by chance make the variance small and the
freedom large at once: with three of them, a p-value below 0.05/12 occurred four times as often as
it should. So the freedom, not the variance, is computed with the seeds' term at its upper 90 %
confidence limit, (n − 1) / χ²(0.1; n − 1) times the observed one. It is n − 1 if seeds dominate,
as it must be, and as large as the rows' if the seeds' part is certainly negligible.

Rows that belong to groups are not drawn one by one: groups take their place throughout, each
with one value (``by_group``).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

NORMAL = 1e9
"""Degrees of freedom with which Student's t is the normal distribution to ten digits."""
_LUCK = 0.1
_ROUNDING = 1e-12
_ROW_ROUNDING = 1e-6  # of scores that were stored in float32


class Estimate(NamedTuple):
    """A mean difference, the variance of that mean, and the degrees of freedom of the variance.

    ``by_seed``, ``by_row`` and ``by_both`` are σα², σβ² and σγ² if known, none below 0: they
    predict the variance for other numbers of seeds and rows. ``rows`` is 0 if test rows are not
    a separate source of randomness, ``seeds`` if seeds are not. With ``grouped`` the rows are
    groups of rows. Variance and freedom are NaN if nothing can be tested.
    """

    mean: float
    variance: float
    freedom: float
    seeds: int
    rows: int = 0
    by_seed: float = math.nan
    by_row: float = 0.0
    by_both: float = 0.0
    grouped: bool = False

    @property
    def testable(self) -> bool:
        """Whether there is a variance to test with."""
        return math.isfinite(self.variance)

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(self.variance)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Mean ± t · standard error; NaN if nothing can be tested."""
        if not self.testable:
            return math.nan, math.nan
        half = float(special.stdtrit(self.freedom, (1 + level) / 2)) * self.error
        return self.mean - half, self.mean + half

    def with_more(self, seeds: int, rows: float) -> tuple[float, float]:
        """The variance and freedom to expect with this many seeds and rows."""
        if not self.seeds:
            return self.by_row / rows, rows - 1.0
        of_seeds = self.by_seed / seeds
        if not self.rows:
            return of_seeds, seeds - 1.0
        of_rows, of_both = self.by_row / rows, self.by_both / seeds / rows
        return of_seeds + of_rows + of_both, _freedom(
            of_seeds + of_both, of_rows + of_both, of_both, seeds, rows
        )


def over_seeds(differences: ArrayLike) -> Estimate:
    """The ordinary paired t: mean d, s²/n, n − 1 degrees of freedom.

    It is about new seeds, and about new data if every seed draws its own. Differences that are
    all the same give no information on their spread, unless all are 0: the variance is NaN, as it
    is for fewer than two seeds and for values that are not finite.
    """
    d = np.asarray(differences, dtype=np.float64)
    n = len(d)
    mean = float(d.mean()) if n else math.nan
    if n < 2 or not np.isfinite(d).all():
        return Estimate(mean, math.nan, math.nan, n)
    spread = float(d.var(ddof=1))
    if spread <= (_ROUNDING * np.abs(d).max()) ** 2 and mean:
        return Estimate(mean, math.nan, math.nan, n)
    return Estimate(mean, spread / n, n - 1, n, by_seed=spread)


def crossed_means(differences: ArrayLike, *, quantum: float = 0.0) -> Estimate:
    """The mean of differences (n seeds, m rows) for new seeds and new rows.

    The variance is (MS_seed + MS_row − MS_interaction) / (nm), not below its largest positive
    term: the difference of estimates may be anything, but the sum of two parts is at least as
    large as either. The module's docstring defines its degrees of freedom. ``quantum`` is the
    unit of a row's score, such as the 1 of an error: the variance is no less than
    ``quantum_variance``. At least two seeds, two rows and finite values are needed; else the
    variance is NaN.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 2:
        raise ValueError(f"differences: found shape {d.shape}; expected seeds × rows")
    n, m = d.shape
    mean = float(d.mean()) if d.size else math.nan
    if n < 2 or m < 2 or not math.isfinite(mean):
        return Estimate(mean, math.nan, math.nan, n, m)
    seed, row, both = _mean_squares(d)
    cells = n * m
    least = quantum_variance(m, quantum)
    variance = max(_sum(seed, row, both) / cells, least)
    if mean and math.sqrt(variance) <= _ROW_ROUNDING * abs(mean):
        return Estimate(mean, math.nan, math.nan, n, m)
    freedom = _freedom(seed / cells, row / cells, both / cells, n, m)
    return Estimate(
        *(mean, variance, n - 1.0 if variance == least else freedom, n, m),
        by_seed=max((seed - both) / m, 0.0),
        by_row=max((row - both) / n, 0.0),
        by_both=both,
    )


def by_group(differences: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """One value per seed and group (n, G), whose means are those of the rows (n, m).

    A mean over rows is a ratio, the groups' sums by their sizes, and both are drawn with the
    groups. With d the mean of all, S_sg a group's sum and m_g its size, the values are
    d + (S_sg − m_g d)·G/m: their spread over groups is that of the ratio, linearised.
    """
    _, member = np.unique(groups, return_inverse=True)
    sizes = np.bincount(member)
    sums = np.stack([np.bincount(member, of_seed, minlength=len(sizes)) for of_seed in differences])
    mean = differences.mean()
    return np.asarray(mean + (sums - sizes * mean) * (len(sizes) / differences.shape[1]))


def quantum_variance(rows: int, quantum: float = 1.0) -> float:
    """The variance of a mean over rows of which two differ by a quantum, one either way.

    It is the smallest variance assumed for a mean of counts: a few rows without any difference
    do not prove that there is none.
    """
    return 2 * (quantum / rows) ** 2


def crossed_binned(differences: ArrayLike, row_variance: float, rows: int) -> Estimate:
    """The mean over seeds of differences (n,) in a metric that is not a mean over rows.

    ``row_variance`` is the variance of that mean over resamples of the ``rows``, the same for
    all seeds and both sides. It is added to s²/n, the part of the seeds. The interaction of rows
    and seeds is in both: the sum is too large rather than too small.
    """
    alone = over_seeds(differences)
    n = alone.seeds
    # Seeds that do not differ at all can still be tested, if the rows give a variance.
    of_seeds = alone.variance if alone.testable else 0.0 if n > 1 else math.nan
    variance = of_seeds + row_variance
    if not (math.isfinite(alone.mean) and variance > 0) and not (variance == alone.mean == 0):
        return Estimate(alone.mean, math.nan, math.nan, n, rows)
    return Estimate(
        *(alone.mean, variance, _freedom(of_seeds, row_variance, 0.0, n, rows), n, rows),
        by_seed=of_seeds * n,
        by_row=row_variance * rows,
    )


def _mean_squares(d: NDArray[np.float64]) -> tuple[float, float, float]:
    """The mean squares of seeds, rows, and their interaction."""
    n, m = d.shape
    seeds, rows, mean = d.mean(axis=1), d.mean(axis=0), d.mean()
    of_seeds = m * float(np.square(seeds - mean).sum()) / (n - 1)
    of_rows = n * float(np.square(rows - mean).sum()) / (m - 1)
    rest = np.square(d - seeds[:, None] - rows[None, :] + mean).sum()
    return of_seeds, of_rows, float(rest) / ((n - 1) * (m - 1))


def _sum(seed: float, row: float, both: float) -> float:
    """Seeds + rows − interaction, but no less than either of the first two."""
    return max(seed + row - both, seed, row)


def _freedom(seed: float, row: float, both: float, seeds: int, rows: float) -> float:
    """Satterthwaite's degrees of freedom, the seeds' term at its upper limit; n − 1 at least."""
    n, m = seeds - 1, rows - 1
    high = seed * n / float(special.chdtri(n, 1 - _LUCK))  # the quantile that _LUCK lies below
    squares = high**2 / n + row**2 / m + both**2 / (n * m)
    if squares == 0:
        return float(n)
    return min(max(_sum(high, row, both) ** 2 / squares, n), NORMAL)
