"""One score per row: enough for two classes, if its meaning is declared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.data.prediction_files import DeclaredKind, Found, Reading, ScoreKind
from calibration.data.texts import as_text

SCORE_KINDS: dict[DeclaredKind, ScoreKind] = {"probability": "probabilities", "logit": "logits"}
_SHOWN = 10


class TwoClasses(NamedTuple):
    """The scores of both classes (N, 2), their names and kind, and a note about them."""

    scores: NDArray[np.float64]
    names: tuple[str, str]
    kind: ScoreKind
    taken: str
    notes: tuple[str, ...] = ()


def two_classes(found: Found, reading: Reading) -> TwoClasses:
    """Both classes' scores from one: p becomes (1 − p, p), log-odds z become (0, z).

    The positive class is the second, unless ``reading.classes`` has it first. Raises
    ``ValueError``, with the option to use, if the kind or the positive class is not declared,
    and if scores or labels contradict the declaration.
    """
    kind, positive = _declared(found, reading)
    score = _numbers(found)
    names = _names(found, reading, positive)
    notes: tuple[str, ...] = ()
    if kind == "probability":
        _check_probabilities(score, found)
        both = [1 - score, score]
    else:
        both = [np.zeros_like(score), score]
        if score.min() >= 0 and score.max() <= 1:
            notes = (
                f"{found.path}: {found.scores_name} taken as logits, as declared, but all lie "
                "between 0 and 1: are they probabilities?",
            )
    if names[0] == positive:
        both.reverse()
    taken = f"{found.taken} taken as the {kind} of {positive!r}"
    return TwoClasses(np.stack(both, 1), names, SCORE_KINDS[kind], taken, notes)


def undeclared(found: Found, reading: Reading) -> str:
    """The missing options, as the user would write them."""
    options = []
    kind, positive = reading.single
    if kind is None:
        # A column's name may suggest it, but does not prove what the column holds.
        likely = "logit" if "logit" in found.scores_name.lower() else "probability"
        other = "probability" if likely == "logit" else "logit"
        options.append(f"--score-kind {likely} (or {other})")
    if positive is None:
        known = reading.classes or _by_frequency(found)
        two = len(known) == 2
        options.append(f"--positive {known[0]} (or {known[1]})" if two else "--positive CLASS")
    return " and ".join(options)


def _declared(found: Found, reading: Reading) -> tuple[DeclaredKind, str]:
    kind, positive = reading.single
    if kind is None or positive is None:
        raise ValueError(
            f"{found.path}: {found.scores_name} holds one score per row, which is enough for two "
            f"classes; say what it is: {undeclared(found, reading)}"
        )
    return kind, positive


def _numbers(found: Found) -> NDArray[np.float64]:
    origin = f"{found.path}: {found.scores_name}"
    if found.scores.dtype.kind not in "iuf":
        raise ValueError(f"{origin} must be numbers, found the type {found.scores.dtype}")
    score = found.scores.reshape(-1).astype(np.float64)
    if not len(score):
        raise ValueError(f"{origin} is empty")
    bad = np.flatnonzero(~np.isfinite(score))
    if len(bad):
        raise ValueError(
            f"{origin} must be finite, found {score[bad[0]]} in row {bad[0]} (counted from 0)"
        )
    return score


def _check_probabilities(score: NDArray[np.float64], found: Found) -> None:
    wrong = np.flatnonzero((score < 0) | (score > 1))
    if len(wrong):
        raise ValueError(
            f"{found.path}: {found.scores_name} must lie in [0, 1] as --score-kind probability "
            f"says, found {score[wrong[0]]:.6g} in row {wrong[0]} (counted from 0); if they are "
            "log-odds, write --score-kind logit"
        )


def _names(found: Found, reading: Reading, positive: str) -> tuple[str, str]:
    """The two classes; labels, if any, must be among them."""
    there = sorted(_by_frequency(found))
    known = reading.classes or found.class_names
    if known is not None and len(known) == 2:
        if positive not in known:
            raise ValueError(
                f"--positive: found {positive!r}; the classes are {known[0]} and {known[1]}"
            )
        return known[0], known[1]
    if there and positive not in there:
        raise ValueError(
            f"{found.path}: --positive: {positive!r} is none of the labels; found {_listed(there)}"
        )
    others = [name for name in there if name != positive]
    if len(others) > 1:
        raise ValueError(
            f"{found.path}: {found.labels_name} has {len(there)} classes, {_listed(there)}; one "
            "score per row is enough for two only: give a column for each class"
        )
    return (others[0] if others else f"not {positive}"), positive


def _by_frequency(found: Found) -> tuple[str, ...]:
    """The labels, rarest first."""
    if found.labels is None:
        return ()
    values, counts = np.unique(found.labels.reshape(-1), return_counts=True)
    order = np.argsort(counts, kind="stable")
    texts = (as_text(value) for value in values[order].tolist() if value == value)
    return tuple(text for text in texts if text)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
