"""The sweep specification: a YAML file, checked whole before anything starts.

Two passes: pydantic checks the structure, ``_check_meaning`` what the names and values
refer to. Every complaint is a ``SpecError`` naming the file, the line, the field, the
value and what would be right.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from calibration import metrics, post_hoc
from calibration.data import DATASETS, AbsentDataError, Dataset, load_dataset
from calibration.methods import METHODS, Method
from calibration.models import build_model
from sweeps.schema import Choice, Spec, Table
from sweeps.space import extremes, grid_size, parse_domain
from sweeps.store import RESERVED_NAMES, file_name

Location = tuple[str | int, ...]

LARGEST_GRID = 100_000
LONGEST_NAME = 80
ORACLE = "oracle (true posterior)"
RESERVED_ROWS = ("oracle", ORACLE)


class SpecError(ValueError):
    """A specification that cannot be run; the message is meant for its author."""


class ProblemError(ValueError):
    """A complaint about the value at ``location``; the loader adds file and line."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.location = location


class LoadedSpec:
    """A checked spec, the file it came from, and its datasets."""

    def __init__(
        self, spec: Spec, text: str, datasets: dict[str, Dataset], notes: list[str]
    ) -> None:
        self.spec = spec
        self.text = text
        self.datasets = datasets
        self.notes = notes


def load_spec(path: Path) -> LoadedSpec:
    """Read and check a specification. Raises ``SpecError``; writes nothing.

    Top-level keys that begin with ``x-`` are the author's own, a place for YAML anchors.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.y*ml")])
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise SpecError(f"{path}: there is no such file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read as text: {error}") from None
    written, lines = _parse(path, text)
    try:
        ours = {key: value for key, value in written.items() if not str(key).startswith("x-")}
        spec = _from_directory(Spec.model_validate(ours), path.parent)
        spec, notes = _with_available_datasets(spec)
        datasets = _check_meaning(spec)
    except ValidationError as error:
        location, message = _explain(error, written)
        raise SpecError(_at(path, location, lines, message)) from None
    except ProblemError as problem:
        raise SpecError(_at(path, problem.location, lines, str(problem))) from None
    return LoadedSpec(spec, text, datasets, notes)


def _parse(path: Path, text: str) -> tuple[dict[str, Any], dict[Location, int]]:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        written = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}" if mark else ""
        raise SpecError(f"{path}{where}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(written, dict):
        raise SpecError(
            f"{path}: found {type(written).__name__}, wanted a mapping with at least "
            "name, datasets and methods"
        )
    lines: dict[Location, int] = {}
    try:
        _collect_lines(path, node, (), lines)
    except RecursionError:
        raise SpecError(f"{path}: is nested too deeply, or contains itself") from None
    return written, lines


def _collect_lines(
    path: Path, node: yaml.Node | None, at: Location, lines: dict[Location, int]
) -> None:
    if node is None:
        return
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*at, str(key.value))
            if here in lines:
                field = ".".join(map(str, here))
                raise SpecError(
                    f"{path}:{key.start_mark.line + 1}: {field}: stands there twice "
                    f"(first on line {lines[here]}); keep one"
                )
            lines[here] = key.start_mark.line + 1
            _collect_lines(path, value, here, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _collect_lines(path, value, (*at, index), lines)


def _at(path: Path, location: Location, lines: dict[Location, int], message: str) -> str:
    known = location
    while known and known not in lines:
        known = known[:-1]
    field = ".".join(str(part) for part in location)
    return f"{path}:{lines.get(known, 1)}: {field}: {message}" if field else f"{path}: {message}"


def _explain(error: ValidationError, written: dict[str, Any]) -> tuple[Location, str]:
    # A mistyped key is both unknown and missing: the unknown one tells more.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    location = tuple(first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return location, "is required and missing"
    if first["type"] == "extra_forbidden":
        owner: Any = Spec
        for part in location[:-1]:
            owner = _field_type(owner, part)
        known = sorted(getattr(owner, "model_fields", {}))
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        return location, f"unknown key; {remedy}"
    return location, f"found {_shortened(first['input'])}; {message[0].lower()}{message[1:]}"


def _field_type(owner: Any, part: str | int) -> Any:
    field = getattr(owner, "model_fields", {}).get(part)
    if field is None:
        return None
    candidates = [field.annotation, *get_args(field.annotation)]
    models = (c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return next(models, None)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _check_meaning(spec: Spec) -> dict[str, Dataset]:
    """What the names refer to exists and fits together. Raises ``ProblemError``."""
    if spec.name in RESERVED_NAMES:
        raise ProblemError(
            ("name",), f"found {spec.name!r}, which the store uses itself; choose another"
        )
    for row in spec.methods:
        _check_row(spec, row)
        if spec.search.sampler == "grid":
            size = grid_size(spec.space(row), spec.search.resolution)
            if size > LARGEST_GRID:
                raise ProblemError(
                    ("methods", row),
                    f"its grid has {size} points, more than {LARGEST_GRID}; fix some knobs or "
                    "lower search.resolution",
                )
    for index, name in enumerate(spec.post_hoc if isinstance(spec.post_hoc, list) else []):
        location: Location = ("post_hoc", index)
        kind = _named(location, lambda name=name: post_hoc.CALIBRATORS[name])
        _check_kind(location, name, kind, post_hoc.Calibrator)
        if name in spec.post_hoc[:index]:
            raise ProblemError(location, f"{name!r} stands there twice; keep one")
    if spec.table is not None:
        _check_table(spec, spec.table)
    datasets: dict[str, Dataset] = {}
    for index, choice in enumerate(spec.datasets):
        location = ("datasets", index)
        dataset = _named(location, lambda c=choice: load_dataset(c.name, c.options))
        if dataset.name in datasets:
            raise ProblemError(location, f"a second dataset is called {dataset.name!r}; keep one")
        for row, written in spec.methods.items():
            if dataset.kind != "image" and spec.row_training(row).augmentation != "none":
                own = ("methods", row) if "augmentation" in written.training else ()
                raise ProblemError(
                    (*own, "training", "augmentation"),
                    f"{dataset.name!r} has no images; write 'none'",
                )
        datasets[dataset.name] = dataset
        _check_model(spec, dataset, location)
    return datasets


def _from_directory(spec: Spec, directory: Path) -> Spec:
    """The spec with the relative paths among dataset options taken from its own directory."""
    choices = []
    for index, choice in enumerate(spec.datasets):
        paths: set[str] = set()
        if ":" not in choice.name:
            kind = _named(("datasets", index), lambda name=choice.name: DATASETS[name])
            fields = kind.model_fields.items()
            paths = {n for n, f in fields if Path in (f.annotation, *get_args(f.annotation))}
        options = {
            name: str(directory.resolve() / str(value)) if name in paths else value
            for name, value in choice.options.items()
        }
        choices.append(Choice(name=choice.name, options=options))
    return spec.model_copy(update={"datasets": choices})


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
            _named(location, lambda name=otherwise: DATASETS[name])
            try:
                load_dataset(choice.name, options)
            except AbsentDataError:
                notes.append(f"{choice.name} is not on this machine; {otherwise} takes its place")
                choice = Choice(name=otherwise)
            except ValueError as error:
                raise ProblemError(location[:-1], str(error)) from None
            else:
                choice = Choice(name=choice.name, options=options)
        choices.append(choice)
    return spec.model_copy(update={"datasets": choices}), notes


def _check_row_name(name: str, others: list[str]) -> None:
    """Names stand in tables, files and labels such as 'row + map': they must be fit for it."""
    location: Location = ("methods", name)
    if len(name) > LONGEST_NAME or not name.isprintable() or not any(c.isalnum() for c in name):
        raise ProblemError(
            location, f"a row's name has letters or digits, at most {LONGEST_NAME} characters"
        )
    if " + " in name or name in RESERVED_ROWS:
        raise ProblemError(
            location, "a row must not be called 'oracle' or hold ' + ', which joins rows and maps"
        )
    alike = [other for other in others if file_name(other) == file_name(name)]
    if alike:
        raise ProblemError(
            location, f"its files would be those of {alike[0]!r}; use another letter or digit"
        )


def _check_row(spec: Spec, name: str) -> None:
    row = spec.methods[name]
    location: Location = ("methods", name)
    names = list(spec.methods)
    _check_row_name(name, names[: names.index(name)])
    kind = _named(location, lambda: METHODS[row.method])
    _check_kind(location, row.method, kind, Method)
    for knob, written in row.knobs.items():
        try:
            domain = parse_domain(written)
            for value in extremes(domain):
                kind.Hyperparameters.checked({knob: value}, f"method {row.method!r}")
        except ValueError as error:
            raise ProblemError((*location, knob), str(error)) from None
    training = _named((*location, "training"), lambda: spec.row_training(name))
    if spec.search.objective == "refinement" and training.stop_on != "refinement":
        raise ProblemError(
            ("search", "objective"), "'refinement' needs training.stop_on: refinement as well"
        )


def _check_table(spec: Spec, table: Table) -> None:
    known = {*metrics.METRICS, "accuracy", "floor", "large_ece", "true_ce", "posterior_gap"}
    for index, metric in enumerate(table.metrics):
        if metric not in known:
            raise ProblemError(
                ("table", "metrics", index), f"unknown metric; known: {', '.join(sorted(known))}"
            )
    for row, ours in table.rows.items():
        label, _, chosen = ours.partition(" + ")
        is_there = label in spec.methods and (chosen or "identity") in spec.maps
        if ours != "oracle" and not is_there:
            raise ProblemError(
                ("table", "rows", row),
                f"found {ours!r}; write a row of 'methods', alone or as 'row + map' with a map of "
                "'post_hoc', or 'oracle'",
            )
    if "large_ece" in table.metrics and not spec.large_test:
        raise ProblemError(("large_test",), "the table's 'large_ece' needs it; write e.g. 20000")
    for dataset, rows in table.published.items():
        for row, values in rows.items():
            known_here = table.metrics if row in table.rows else list(table.rows)
            for name in values if row in table.rows else [row]:
                if name not in known_here:
                    raise ProblemError(
                        ("table", "published", dataset, row),
                        f"{name!r} is not in the table; there are {', '.join(known_here)}",
                    )


def _check_model(spec: Spec, dataset: Dataset, location: Location) -> None:
    splits = _named(location, lambda: dataset.split(spec.protocol, spec.seed, held_out=True))
    shape = tuple(splits.transform(splits.train.inputs[:1]).shape[1:])
    _named(
        ("model",),
        lambda: build_model(spec.model.name, spec.model.options, shape, dataset.classes),
    )


def _named(location: Location, look_up: Any) -> Any:
    try:
        return look_up()
    except (ValueError, OSError) as error:
        raise ProblemError(location, str(error)) from None
    except Exception as error:  # what is looked up may be a user's own code
        raise ProblemError(location, f"{type(error).__name__}: {error}") from None


def _check_kind(location: Location, name: str, found: Any, wanted: type) -> None:
    if not (isinstance(found, type) and issubclass(found, wanted)):
        raise ProblemError(location, f"{name!r} is not a subclass of {wanted.__name__}")
