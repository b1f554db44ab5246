"""Where in an NPZ file of stored predictions the scores and the labels are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from calibration.data.npz import CLASS_NAMES, NpzFile, class_names_in

ScoreKind = Literal["logits", "probabilities"]
DeclaredKind = Literal["probability", "logit"]

SCORES: dict[str, ScoreKind] = {
    "logits": "logits",
    "probs": "probabilities",
    "probabilities": "probabilities",
}
LABELS = ("labels", "label", "y")
VALIDATION = ("val_", "validation_", "valid_")
_TEST = "test_"


@dataclass(frozen=True)
class Reading:
    """What a user declares about a file that it does not say itself.

    ``label`` names a table's column of labels. A binary problem needs only one score: the
    column or array ``score`` (optional if there is only one), whose ``kind`` and ``positive``
    class, to which it refers, are never guessed. ``remembered`` are these two as declared when a
    calibrator was fitted, ``classes`` its classes: they apply unless the user says otherwise.
    ``drop_unlabelled`` leaves out rows without a label.

    ``weight`` and ``group`` name columns or arrays with one value per row: how much it counts,
    and what it belongs to. ``aside`` are columns that are not scores, if present.
    """

    label: str | None = None
    score: str | None = None
    kind: DeclaredKind | None = None
    positive: str | None = None
    remembered: tuple[DeclaredKind, str] | None = None
    classes: tuple[str, ...] | None = None
    drop_unlabelled: bool = False
    weight: str | None = None
    group: str | None = None
    aside: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """The columns or arrays that describe rows, by their role."""
        named = {"weight": self.weight, "group": self.group}
        return {role: name for role, name in named.items() if name is not None}

    @property
    def declares_score(self) -> bool:
        """Whether anything is declared about a single score."""
        return any(said is not None for said in (self.score, self.kind, self.positive))

    @property
    def single(self) -> tuple[DeclaredKind | None, str | None]:
        """The kind of a single score and the class it refers to, as far as known."""
        kind, positive = self.remembered or (None, None)
        return self.kind or kind, self.positive or positive


@dataclass(frozen=True)
class Found:
    """Arrays as stored in a file, not yet checked; ``kind`` is None if not declared.

    ``carried`` are other columns or arrays with one value per row, which stay with the rows;
    ``roles`` those that describe rows, by role: the name and the values.
    """

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
    carried: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    @property
    def is_single(self) -> bool:
        """Whether there is one score per row rather than one per class."""
        return self.scores.ndim == 1 or (self.scores.ndim == 2 and self.scores.shape[1] == 1)


def npz_parts(path: Path, reading: Reading, *, labelled: bool) -> list[Found]:
    """The only set of predictions in an NPZ file, or the validation and the test set.

    Nothing is unpickled. Raises ``ValueError`` if the file is damaged or arrays are missing.
    """
    stored = NpzFile(path)
    wanted = tuple(SCORES) if reading.score is None else (reading.score,)
    prefixes = _npz_prefixes(stored.names, wanted)
    chosen = [_npz_choice(stored, prefix, wanted, labelled) for prefix in prefixes]
    named = [CLASS_NAMES] if CLASS_NAMES in stored.names else []
    used = [name for choice in chosen for name in choice if name]
    content = stored.arrays([*used, *named])
    names = class_names_in(content[CLASS_NAMES], path) if named else None
    parts = [_npz_part(stored, content, names, scores, label) for scores, label in chosen]
    if reading.roles:
        parts = [
            replace(part, roles=_npz_roles(stored, prefix, reading, part))
            for part, prefix in zip(parts, prefixes, strict=True)
        ]
    # With labels something is fitted, and no rows are written for other arrays to stay with.
    return parts if labelled else [_with_carried(stored, part) for part in parts]


def _with_carried(stored: NpzFile, part: Found) -> Found:
    carried, unreadable = stored.columns(
        len(part.scores) if part.scores.ndim else 0, {part.scores_name, CLASS_NAMES, *SCORES}
    )
    lost = f"{part.path}: cannot be read, and is not kept: {', '.join(unreadable)}"
    notes = (*part.notes, lost) if unreadable else part.notes
    return replace(part, carried=carried, notes=notes)


def _npz_prefixes(names: tuple[str, ...], wanted: tuple[str, ...]) -> list[str]:
    """The prefix of the names of each set of predictions."""
    for prefix in VALIDATION:
        if any(f"{prefix}{name}" in names for name in wanted):
            both = any(f"{_TEST}{name}" in names for name in wanted)
            return [prefix, _TEST] if both else [prefix]
    return [""]


def _npz_choice(
    stored: NpzFile, prefix: str, wanted: tuple[str, ...], labelled: bool
) -> tuple[str, str | None]:
    """The arrays of scores and, if requested, of labels."""
    scores = next((prefix + name for name in wanted if prefix + name in stored.names), None)
    if scores is None:
        lacking = f"is no array {prefix + wanted[0]!r}, which --score names"
        if wanted == tuple(SCORES):
            lacking = f"is neither {prefix + 'logits'!r} nor {prefix + 'probs'!r}"
        raise ValueError(
            f"{stored.path}: there {lacking}; found {', '.join(sorted(stored.names)) or 'nothing'}"
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


def _npz_roles(
    stored: NpzFile, prefix: str, reading: Reading, part: Found
) -> dict[str, tuple[str, NDArray[Any]]]:
    """The arrays that describe rows, named with the prefix of the scores."""
    from calibration.data.roles import Roles, check_roles  # importing pandas takes a second

    names = {role: prefix + name for role, name in reading.roles.items()}
    used = {part.labels_name: "the labels", part.scores_name: "the scores"}
    check_roles(Roles(**names), str(stored.path), used)
    for role, name in names.items():
        if name not in stored.names:
            raise ValueError(
                f"{stored.path}: there is no {role} array {name!r}; found "
                f"{', '.join(sorted(stored.names))}"
            )
    content = stored.arrays(names.values())
    return {role: (name, content[name]) for role, name in names.items()}


def _npz_part(
    stored: NpzFile,
    content: dict[str, NDArray[Any]],
    class_names: tuple[str, ...] | None,
    scores: str,
    label: str | None,
) -> Found:
    kind = next((name for name in SCORES if scores.endswith(name)), scores)
    prefix = scores.removesuffix(kind)
    unused = [prefix + name for name in SCORES if prefix + name in stored.names]
    return Found(
        path=stored.path,
        scores=content[scores],
        scores_name=scores,
        kind=SCORES.get(kind),
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
