"""The sweep specification: a YAML file, checked whole before anything starts.

Three passes: the text is read (``sweeps.spec.reading``), pydantic checks the structure
(``sweeps.spec.schema``), and then what the names and values refer to
(``sweeps.spec.meaning``). Every complaint is a ``SpecError`` naming the file, the line, the
field, the value and what would be right.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from calibration.data import DATASETS, AbsentDataError, Dataset, Protocol, load_dataset
from calibration.models import MODELS
from calibration.registry import Registry
from calibration.training_config import TrainingConfig
from sweeps.host.secrets import masked
from sweeps.spec.backbone_checks import encoder_digest
from sweeps.spec.data_notes import data_notes
from sweeps.spec.meaning import check_meaning
from sweeps.spec.reading import (
    Lines,
    Location,
    ProblemError,
    SpecError,
    parse,
    place,
    read_text,
    shortened,
)
from sweeps.spec.row_checks import ORACLE, named
from sweeps.spec.schema import Component, Spec

__all__ = ["ORACLE", "LoadedSpec", "ProblemError", "SpecError", "load_spec", "read_spec"]


@dataclass(frozen=True)
class LoadedSpec:
    """A checked spec, its text, its datasets, notes for the user, and the values as written.

    Relative paths among its datasets' and its model's options are relative to ``directory``.
    ``encoder`` is the digest of its pretrained network, empty without one.
    """

    spec: Spec
    text: str
    datasets: dict[str, Dataset]
    notes: list[str]
    written: Mapping[str, Any]
    directory: Path
    encoder: str = ""


def load_spec(path: Path) -> LoadedSpec:
    """Read and check a specification. Raises ``SpecError``; writes nothing.

    Relative paths among its options are relative to the file's directory.
    Top-level keys that begin with ``x-`` are the author's own, a place for YAML anchors.
    """
    return read_spec(read_text(path), path, path.parent)


def read_spec(text: str, path: Path, directory: Path) -> LoadedSpec:
    """Check the text of a specification; errors name the file ``path``."""
    written, lines = parse(path, text)
    _add_row_lines(written, lines)
    directory = directory.resolve()
    try:
        spec = _from_directory(validated(written), directory)
        spec, notes = _with_available_datasets(spec)
        datasets = check_meaning(spec)
        encoder = encoder_digest(spec)
        notes += [f"{name}: {note}" for name, data in datasets.items() for note in data_notes(data)]
    except ProblemError as problem:
        raise SpecError(place(path, problem.location, lines, str(problem))) from None
    # The text is stored and shown, so it must not contain a server's password.
    return LoadedSpec(spec, masked(text), datasets, notes, written, directory, encoder)


def _add_row_lines(written: dict[str, Any], lines: Lines) -> None:
    """Add the lines of rows by their names, for rows in a list."""
    rows = written.get("methods")
    if not isinstance(rows, list):
        return
    for location, line in list(lines.items()):
        match location:
            case ("methods", int(index), *rest):
                item = rows[index]
                name = [item] if isinstance(item, str) else []
                lines.setdefault(("methods", *name, *rest), line)


def validated(written: Mapping[str, Any]) -> Spec:
    """The spec of a YAML file's values. Raises ``ProblemError`` if its form is wrong."""
    try:
        spec = Spec.model_validate(written)
    except ValidationError as error:
        location, message = explain(error, Spec)
        raise ProblemError(location, message) from None
    # These two come from the library, where "3" and true may stand for numbers.
    _check_strictly(TrainingConfig, written.get("training"), ("training",))
    _check_strictly(Protocol, written.get("protocol"), ("protocol",))
    for row, chosen in spec.methods.items():
        _check_strictly(TrainingConfig, chosen.training, ("methods", row, "training"))
    return spec


def _check_strictly(model: type[BaseModel], written: Any, location: Location) -> None:
    if not isinstance(written, Mapping):
        return
    try:
        # From JSON: a strict model takes no list for a tuple in Python.
        model.model_validate_json(json.dumps(written), strict=True)
    except ValidationError as error:
        inside, message = explain(error, model)
        raise ProblemError(location + inside, message) from None


def explain(error: ValidationError, model: type[BaseModel]) -> tuple[Location, str]:
    """The location and message of the most helpful error."""
    found = [(_without_tags(model, each["loc"]), each) for each in error.errors()]
    # A mistyped key is both unknown and missing: the former says more.
    first, _ = min(found, key=lambda pair: pair[1]["type"] != "extra_forbidden")
    # Of several possible forms, the error that got furthest is about the one that was meant.
    location = max((at for at, _ in found if at[: len(first)] == first), key=len)
    about = [each for at, each in found if at == location]
    kind = about[0]["type"]
    if kind == "missing":
        return location, "is required and missing"
    if kind == "extra_forbidden":
        owner: Any = model
        for part in location[:-1]:
            owner = _model_of(owner, part)
        known = sorted(getattr(owner, "model_fields", {}))
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        return location, f"unknown key; {remedy}"
    remedies = " or ".join(dict.fromkeys(_remedy(each) for each in about))
    return location, f"found {shortened(about[0]['input'])}; {remedies}"


def _remedy(error: Any) -> str:
    if error["type"] in ("model_type", "dict_type"):
        return "expected a mapping, {key: value}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def _without_tags(model: type[BaseModel], location: tuple[str | int, ...]) -> Location:
    """The location without pydantic's own names for the members of a union."""
    owner: Any = model
    kept: list[str | int] = []
    parts = iter(location)
    for part in parts:
        kept.append(part)
        field = getattr(owner, "model_fields", {}).get(part)
        owner = _model_of(owner, part)
        if field is not None and owner is None and _has_forms(field.annotation):
            next(parts, None)
    return tuple(kept)


def _has_forms(annotation: Any) -> bool:
    """Whether it is a union of several types, None not counted."""
    is_union = get_origin(annotation) in (Union, UnionType)
    return is_union and len([m for m in get_args(annotation) if m is not NoneType]) > 1


def _model_of(owner: Any, part: str | int) -> type[BaseModel] | None:
    field = getattr(owner, "model_fields", {}).get(part)
    candidates = [] if field is None else [field.annotation, *get_args(field.annotation)]
    models = (c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return next(models, None)


def _from_directory(spec: Spec, directory: Path) -> Spec:
    """The spec with the relative paths among its options resolved from ``directory``."""
    choices = [
        _placed(choice, DATASETS, ("datasets", index), directory)
        for index, choice in enumerate(spec.datasets)
    ]
    model = _placed(spec.model, MODELS, ("model",), directory)
    return spec.model_copy(update={"datasets": choices, "model": model})


def _placed(
    choice: Component, registry: Registry[Any], location: Location, directory: Path
) -> Component:
    if ":" in choice.name and choice.name not in registry:  # a user's own, by import path
        return choice
    kind = named(location, lambda: registry[choice.name])
    options = {
        name: str(directory / value) if _is_path(kind, name, value) else value
        for name, value in choice.options.items()
    }
    return Component(name=choice.name, options=options)


def _is_path(kind: type[BaseModel], name: str, value: Any) -> bool:
    field = kind.model_fields.get(name)
    if field is None or not isinstance(value, str):
        return False
    forms = (field.annotation, *get_args(field.annotation))
    # A word such as ``default`` may take the place of a path.
    return Path in forms and not any(value in get_args(form) for form in forms)


def _with_available_datasets(spec: Spec) -> tuple[Spec, list[str]]:
    """The spec with every absent dataset replaced by its ``otherwise``, and what was replaced."""
    choices, notes = [], []
    for index, choice in enumerate(spec.datasets):
        options = dict(choice.options)
        otherwise = options.pop("otherwise", None)
        if otherwise is not None:
            location: Location = ("datasets", index, "otherwise")
            if not isinstance(otherwise, str):
                raise ProblemError(location, f"found {otherwise!r}; write a dataset's name")
            named(location, lambda name=otherwise: DATASETS[name])
            choice = Component(name=choice.name, options=options)
            if named(location[:-1], lambda c=choice: _is_absent(c)):
                notes.append(f"{choice.name} is not on this machine; {otherwise} takes its place")
                choice = Component(name=otherwise)
        choices.append(choice)
    return spec.model_copy(update={"datasets": choices}), notes


def _is_absent(choice: Component) -> bool:
    try:
        load_dataset(choice.name, choice.options)
    except AbsentDataError:
        return True
    return False
