"""Parts made of whole groups, and parts that follow each other in time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Rows = NDArray[np.int64]

FEWEST_GROUPS = 3
"""A class found in fewer groups stays in the training part, with all rows of these groups."""


def draw_groups(
    labels: _Rows, groups: _Rows, size: int, rng: np.random.Generator, what: str
) -> _Rows:
    """Draw the row numbers of whole groups, about ``size`` rows with every class in proportion.

    Groups are taken in random order as long as they fit, class by class; then those that
    bring the class counts closest to their targets. Every class keeps rows outside.
    Raises ``ValueError`` naming ``what`` if no choice of groups has between half and twice
    ``size`` rows.
    """
    present, codes = np.unique(groups, return_inverse=True)
    classes, encoded = np.unique(labels, return_inverse=True)
    table = np.zeros((len(present), len(classes)), dtype=np.int64)
    np.add.at(table, (codes, encoded), 1)
    spread = (table > 0).sum(0) >= FEWEST_GROUPS
    movable = np.flatnonzero(~(table[:, ~spread] > 0).any(1))
    order = rng.permutation(movable)
    counts, whole = table[order], table.sum(0)
    target = np.where(spread, size * whole / max(int(whole[spread].sum()), 1), 0.0)
    taken = _fill(counts, target, whole)
    rows = int(counts[taken].sum())
    if not size / 2 <= rows <= 2 * size:
        raise ValueError(
            f"{what} needs about {size} rows in whole groups, and {rows} is what the "
            f"{len(movable)} groups that can leave the training part allow (of {len(present)}; "
            f"the largest has {int(table.sum(1).max())} rows, and a class that fewer than "
            f"{FEWEST_GROUPS} groups have stays with the training part); more groups are "
            "needed, or another share"
        )
    return np.flatnonzero(np.isin(codes, order[taken]))


def _fill(counts: _Rows, target: NDArray[np.float64], whole: _Rows) -> NDArray[np.bool_]:
    """Which of the groups, taken in this order, give about ``target`` rows of every class."""
    room = target.copy()
    taken = np.zeros(len(counts), dtype=bool)
    while len(fitting := np.flatnonzero(~taken & (counts <= room).all(1))):
        sums = counts[fitting].cumsum(0)
        first = int((sums <= room).all(1).sum())
        taken[fitting[:first]] = True
        room -= sums[first - 1]
    scale = np.maximum(target, 1e-9)
    while True:
        # Every class must remain in the rest.
        open_groups = np.flatnonzero(~taken & (target - room + counts < whole).all(1))
        off = (np.square(room - counts[open_groups]) / scale).sum(1)
        if not len(off) or off.min() >= (np.square(room) / scale).sum():
            return taken
        best = open_groups[int(off.argmin())]
        taken[best] = True
        room -= counts[best]


def latest_rows(times: _Rows, size: int, what: str) -> _Rows:
    """The row numbers of the latest times: as close to ``size`` rows as whole times allow.

    At least one time is taken and one is left. Raises ``ValueError`` naming ``what`` if
    there is only one.
    """
    stamps, rows = np.unique(times, return_counts=True)
    if len(stamps) < 2:
        raise ValueError(
            f"{what} cannot be taken: {len(times)} rows are left, all of one time; more "
            "distinct times are needed, or smaller shares"
        )
    since = rows[::-1].cumsum()[::-1][1:]  # the rows from each time on
    first = stamps[1:][np.abs(since - size).argmin()]
    return np.flatnonzero(times >= first)
