"""Seeded, stratified and disjoint parts of a set of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.data.dataset import FOLD_NAMES, Part, Splits, Transform
from calibration.data.grouped import draw_groups, latest_rows
from calibration.data.protocol import Protocol, Share

_Rows = NDArray[np.int64]

FEWEST_ROWS = 3
"""A class with fewer rows stays entirely in the training part."""


def stream(*words: str | int) -> np.random.Generator:
    """Return the random stream named by ``words``: equal words give equal numbers.

    Raises ``ValueError`` for a negative seed.
    """
    if any(not isinstance(word, str) and word < 0 for word in words):
        raise ValueError(f"a seed must be 0 or more, found {words}")
    # One hash of all words: a SeedSequence of several numbers ignores trailing zeros.
    text = "/".join(repr(word) if isinstance(word, str) else str(int(word)) for word in words)
    entropy = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
    return np.random.default_rng(np.random.SeedSequence(entropy))


def part_size(share: Share, labels: _Rows, what: str) -> int:
    """Return the number of rows in ``share``; classes too rare to divide do not count.

    Raises ``ValueError`` naming ``what`` if it is zero.
    """
    if isinstance(share, int):
        return share
    sizes = np.unique(labels, return_counts=True)[1]
    size = round(share * int(sizes[sizes >= FEWEST_ROWS].sum()))
    if size == 0:
        raise ValueError(
            f"{what} would be empty: {share:g} of {len(labels)} rows in {len(sizes)} classes "
            f"(a class needs {FEWEST_ROWS} rows to be divided); add rows or raise the share"
        )
    return size


def draw_rows(labels: _Rows, size: int, rng: np.random.Generator, what: str) -> _Rows:
    """Draw ``size`` row numbers, every class in proportion to its rows.

    Every class keeps at least one row, and one with fewer than ``FEWEST_ROWS`` keeps
    all. Raises ``ValueError`` naming ``what`` if that leaves fewer than ``size``.
    """
    _, classes, rows = np.unique(labels, return_inverse=True, return_counts=True)
    divisible = np.where(rows >= FEWEST_ROWS, rows, 0)
    room = np.maximum(divisible - 1, 0)
    if size > room.sum():
        raise ValueError(
            f"{what} needs {size} rows, but only {room.sum()} of {len(labels)} can be taken "
            "with a row of every class left to train on"
        )
    quota = size * divisible / max(divisible.sum(), 1)
    taken = np.minimum(np.floor(quota).astype(np.int64), room)
    while (missing := size - int(taken.sum())) > 0:
        open_classes = np.flatnonzero(taken < room)
        # Random ties: in class order, the first classes would always give more rows.
        tie_break = rng.random(len(open_classes))
        order = np.lexsort((tie_break, (taken - quota)[open_classes]))
        taken[open_classes[order[:missing]]] += 1
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(rows) - rows, rows)
    return np.sort(by_class[rank < np.repeat(taken, rows)])


def draw_part(part: Part, among: _Rows, size: int, rng: np.random.Generator, what: str) -> _Rows:
    """Draw about ``size`` of the rows ``among``, as the data allows.

    Rows with times give the latest, rows in groups whole groups. Raises ``ValueError``
    naming ``what`` if there are too few.
    """
    labels = part.labels.numpy()[among]
    if part.times is not None:
        return among[latest_rows(part.times.numpy()[among], size, what)]
    if part.groups is not None:
        return among[draw_groups(labels, part.groups.numpy()[among], size, rng, what)]
    return among[draw_rows(labels, size, rng, what)]


def take(part: Part, rows: _Rows) -> Part:
    """Return the given rows of a part."""
    return part.take(torch.from_numpy(rows))


def without(rows: _Rows, taken: _Rows) -> _Rows:
    """Return ``rows`` without ``taken``."""
    return np.setdiff1d(rows, taken, assume_unique=True)


def split_pool(
    pool: Part,
    protocol: Protocol,
    seed: int,
    *,
    held_out: bool,
    validation: Share,
    fit: Callable[[Tensor], Transform],
    name: str,
) -> Splits:
    """Split ``pool`` by ``protocol`` and fit the transform on its training part.

    Raises ``ValueError`` naming the dataset and the part that cannot be filled.
    """
    labels = pool.labels.numpy()
    rows: _Rows = np.arange(len(labels))

    def drawn(words: tuple[str | int, ...], size: int, part: str, among: _Rows) -> _Rows:
        return draw_part(pool, among, size, stream(*words), called(part))

    def given(fold: str) -> _Rows:
        assert pool.folds is not None, "asked only where there are some"
        return np.flatnonzero(pool.folds.numpy() == FOLD_NAMES.index(fold))

    def called(part: str) -> str:
        return f"{name}: the {part} part of protocol {protocol.name!r}"

    fixed = None if pool.folds is None else given("validation")
    size = part_size(validation, labels, called("validation")) if fixed is None else len(fixed)
    apart: Part | None = None
    if protocol.choice is not None:
        chosen = _choice_size(protocol.choice, size, called("choice"))
        # No seed: a row that one trial trains on must not evaluate another.
        choice = drawn(("choice",), chosen, "choice", rows if fixed is None else fixed)
        apart, rows = take(pool, choice), without(rows, choice)
        fixed = None if fixed is None else without(fixed, choice)
        size = max(1, size - len(choice))
    chosen_rows = fixed
    if chosen_rows is None:
        chosen_rows = drawn(("validation", seed), size, "validation", rows)
    selection, rows = take(pool, chosen_rows), without(rows, chosen_rows)
    meta: Part | None = None
    if held_out and protocol.share_validation:
        meta = selection
    elif held_out or protocol.same_training_rows:
        inner = None if pool.folds is None else given("meta")
        if inner is None or not len(inner):
            size = part_size(protocol.meta_validation, labels, called("meta-validation"))
            inner = drawn(("meta-validation", seed), size, "meta-validation", rows)
        meta, rows = take(pool, inner) if held_out else None, without(rows, inner)
    training = take(pool, rows)
    return Splits(training, selection, meta, fit(training.inputs), apart)


def _choice_size(share: Share, validation: int, what: str) -> int:
    """The number of rows in ``share`` of the validation rows; neither part is empty."""
    size = share if isinstance(share, int) else round(share * validation)
    if not 0 < size < validation:
        raise ValueError(
            f"{what} would have {size} of {validation} validation rows; it needs at least 1 and "
            "must leave 1 to stop training by: change 'choice' or raise 'validation'"
        )
    return size
