"""Where in an NPZ file of stored predictions the scores and the labels are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from calibration.data.npz import CLASS_NAMES, NpzFile, class_names_in

ScoreKind = Literal["logits", "probabilities"]

SCORES: dict[str, ScoreKind] = {
    "logits": "logits",
    "probs": "probabilities",
    "probabilities": "probabilities",
}
LABELS = ("labels", "label", "y")
VALIDATION = ("val_", "validation_", "valid_")
_TEST = "test_"


@dataclass(frozen=True)
class Found:
    """Arrays as they lie in a file, not yet checked; ``kind`` is None where it is not said."""

    path: Path
    scores: NDArray[Any]
    scores_name: str
    kind: ScoreKind | None
    labels: NDArray[Any] | None
    labels_name: str
    class_names: tuple[str, ...] | None
    taken: str
    notes: tuple[str, ...] = ()
    column: bool = False


def npz_parts(path: Path, *, labelled: bool) -> list[Found]:
    """The one set of predictions in an NPZ file, or the validation and the test set.

    Nothing is unpickled. Raises ``ValueError`` if the file is damaged or arrays are missing.
    """
    stored = NpzFile(path)
    chosen = [_npz_choice(stored, prefix, labelled) for prefix in _npz_prefixes(stored.names)]
    named = [CLASS_NAMES] if CLASS_NAMES in stored.names else []
    content = stored.arrays([*(name for choice in chosen for name in choice if name), *named])
    names = class_names_in(content[CLASS_NAMES], path) if named else None
    return [_npz_part(stored, content, names, scores, label) for scores, label in chosen]


def _npz_prefixes(names: tuple[str, ...]) -> list[str]:
    """How the names of each set of predictions begin."""
    for prefix in VALIDATION:
        if any(f"{prefix}{name}" in names for name in SCORES):
            both = any(f"{_TEST}{name}" in names for name in SCORES)
            return [prefix, _TEST] if both else [prefix]
    return [""]


def _npz_choice(stored: NpzFile, prefix: str, labelled: bool) -> tuple[str, str | None]:
    """The arrays of scores and, where they are wanted, of labels."""
    scores = next((prefix + name for name in SCORES if prefix + name in stored.names), None)
    if scores is None:
        raise ValueError(
            f"{stored.path}: there is neither {prefix + 'logits'!r} nor {prefix + 'probs'!r}; "
            f"found {', '.join(sorted(stored.names)) or 'nothing'}"
        )
    if not labelled:
        return scores, None
    label = next((prefix + name for name in LABELS if prefix + name in stored.names), None)
    if label is None:
        raise ValueError(
            f"{stored.path}: there is no array {prefix + 'labels'!r} beside {scores!r}; found "
            f"{', '.join(sorted(stored.names))}"
        )
    return scores, label


def _npz_part(
    stored: NpzFile,
    content: dict[str, NDArray[Any]],
    class_names: tuple[str, ...] | None,
    scores: str,
    label: str | None,
) -> Found:
    kind = next(name for name in SCORES if scores.endswith(name))
    prefix = scores.removesuffix(kind)
    unused = [prefix + name for name in SCORES if prefix + name in stored.names]
    return Found(
        path=stored.path,
        scores=content[scores],
        scores_name=scores,
        kind=SCORES[kind],
        labels=None if label is None else content[label],
        labels_name=label or "",
        class_names=class_names,
        taken=f"array {scores!r}",
        notes=tuple(
            f"{stored.path}: {name!r} is not used beside {scores!r}"
            for name in unused
            if name != scores
        ),
    )
