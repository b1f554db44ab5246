"""Pareto fronts and the volume they dominate; everything is minimised."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pareto_front(points: ArrayLike) -> NDArray[np.bool_]:
    """Which points (N, M) no other beats: none is at least as good in all and better in one.

    Equal points are on the front together. A point with a NaN is not on it and beats no other.
    Raises ``ValueError`` unless there are rows of numbers.
    """
    rows = _rows(points)
    front = np.asarray(~np.isnan(rows).any(axis=1), dtype=np.bool_)
    whole = rows[front]
    for index in np.flatnonzero(front):
        as_good = (whole <= rows[index]).all(axis=1)
        better = (whole < rows[index]).any(axis=1)
        front[index] = not (as_good & better).any()
    return front


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """The volume between two or three objectives' points and ``reference``.

    It is the measure of the set dominated by some point and bounded by the reference
    (Zitzler and Thiele 1999). Points beyond the reference, and those with a NaN, add nothing.
    Raises ``ValueError`` for another number of objectives.
    """
    rows, corner = _rows(points), np.asarray(reference, dtype=np.float64)
    if corner.shape not in ((2,), (3,)) or rows.shape[1] != len(corner):
        raise ValueError(
            f"points, reference: found shapes {rows.shape} and {corner.shape}; "
            "expected two or three objectives and a reference with as many"
        )
    inside = rows[(rows < corner).all(axis=1)]
    return _area(inside, corner) if len(corner) == 2 else _volume(inside, corner)


def _area(points: NDArray[np.float64], corner: NDArray[np.float64]) -> float:
    """Stairs: from left to right, each point adds what lies below those before it."""
    area, height = 0.0, corner[1]
    for x, y in points[np.lexsort((points[:, 1], points[:, 0]))]:
        if y < height:
            area += (corner[0] - x) * (height - y)
            height = y
    return float(area)


def _volume(points: NDArray[np.float64], corner: NDArray[np.float64]) -> float:
    """Slices between neighbouring third coordinates, each of one area."""
    levels = np.append(np.unique(points[:, 2]), corner[2])
    areas = [_area(points[points[:, 2] <= level, :2], corner[:2]) for level in levels[:-1]]
    return float(np.dot(areas, np.diff(levels)))


def _rows(points: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"points: found shape {rows.shape}; expected one row per point")
    return rows
