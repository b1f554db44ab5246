"""A spec and the files it names, for a machine that need not have its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from calibration.data import DATASETS, AbsentDataError, load_dataset
from sweeps.spec.loading import load_spec, validated
from sweeps.spec.meaning import check_words
from sweeps.spec.reading import ProblemError, SpecError, is_there, parse, place, read_text
from sweeps.spec.schema import Component, Spec


class Outline(NamedTuple):
    """A spec whose form is valid.

    ``files`` are the data files it names by relative paths; ``absent`` are the datasets that are
    not on this machine, so that only another machine can check them.
    """

    spec: Spec
    written: Mapping[str, Any]
    files: list[Path]
    absent: list[str]


def outline(path: Path) -> Outline:
    """Read a spec and check what can be checked here.

    Raises ``SpecError`` as ``load_spec`` does, except that data may be on another machine:
    absolute paths and bundled datasets are looked for there.
    """
    written, lines = parse(path, read_text(path))
    try:
        spec = validated(written)
        check_words(spec)
    except ProblemError as problem:
        raise SpecError(place(path, problem.location, lines, str(problem))) from None
    directory = path.parent.resolve()
    files: list[Path] = []
    absent: list[str] = []
    for choice in spec.datasets:
        relative, elsewhere = _named_files(choice, directory)
        files += relative
        if elsewhere or _is_absent(choice):
            absent.append(choice.name)
    if not absent:
        load_spec(path)
    return Outline(spec, written, files, absent)


def _named_files(choice: Component, directory: Path) -> tuple[list[Path], list[Path]]:
    """The files that a dataset's options name: relative ones, and absolute ones not here."""
    if ":" in choice.name or choice.name not in DATASETS:
        return [], []
    relative, elsewhere = [], []
    for name, field in DATASETS[choice.name].model_fields.items():
        value = choice.options.get(name)
        if Path not in (field.annotation, *get_args(field.annotation)) or value is None:
            continue
        given = Path(str(value))
        if not given.is_absolute():
            relative.append(directory / given)
        elif not is_there(given):
            elsewhere.append(given)
    return relative, elsewhere


def _is_absent(choice: Component) -> bool:
    options = {name: value for name, value in choice.options.items() if name != "otherwise"}
    if len(options) != len(choice.options):
        return False  # its substitute is at hand
    try:
        load_dataset(choice.name, options)
    except AbsentDataError:
        return True
    except Exception:  # the whole check reports what is wrong with it
        return False
    return False
