"""Whether a spec's rows can be run: names, methods, hyperparameters, training settings."""

from __future__ import annotations

import re
from typing import Any

from calibration.learners import Estimator, learner
from sweeps.search import unsupported
from sweeps.search.space import grid_size
from sweeps.spec.reading import Location, ProblemError
from sweeps.spec.schema import ROW_KEYS, Row, Spec
from sweeps.store import file_name

LARGEST_GRID = 100_000
_LONGEST_NAME = 80
MOST_EPOCHS = 10_000_000
ORACLE = "oracle (true posterior)"
RESERVED_ROWS = ("oracle", ORACLE)

_OWN_HYPERPARAMETER = re.compile(r"hyperparameter '([^']*)': ")
_ANY_HYPERPARAMETER = re.compile(r"hyperparameter '([^']*)'")
_POINT = re.compile(r"^(grid|try_first)\[(\d+)\]: ")


def check_rows(spec: Spec) -> None:
    """Raise ``ProblemError`` for the first row that cannot be run."""
    files: dict[str, str] = {}
    for name, row in spec.methods.items():
        _check_name(name, files)
        _check_method(name, row)
        _check_training(spec, name)
        _check_space(spec, name)


def named(location: Location, look_up: Any) -> Any:
    """The result of ``look_up``; whatever it raises becomes a ``ProblemError`` at ``location``."""
    try:
        return look_up()
    except (ValueError, OSError) as error:
        raise ProblemError(location, str(error)) from None
    except Exception as error:  # what is looked up may be a user's own code
        raise ProblemError(location, f"{type(error).__name__}: {error}") from None


def _check_name(name: str, files: dict[str, str]) -> None:
    """Names appear in tables, file names and labels such as 'row + calibrator'."""
    location: Location = ("methods", name)
    if len(name) > _LONGEST_NAME or not name.isprintable() or not any(c.isalnum() for c in name):
        raise ProblemError(
            location, f"a row's name has letters or digits, at most {_LONGEST_NAME} characters"
        )
    if " + " in name or name in RESERVED_ROWS:
        raise ProblemError(
            location,
            "a row must not be called 'oracle' or contain ' + ', which joins rows and calibrators",
        )
    alike = files.setdefault(file_name(name), name)
    if alike != name:
        raise ProblemError(
            location, f"its files would have the names of those of {alike!r}; rename one of them"
        )


def _check_method(name: str, row: Row) -> None:
    location: Location = ("methods", name)
    kind = named(location, lambda: learner(row.method))
    if issubclass(kind, Estimator):
        named(location, kind.check_installed)
    for hyperparameter in kind.Hyperparameters.model_fields:
        if hyperparameter in ROW_KEYS:
            raise ProblemError(
                location,
                f"method {row.method!r} has a hyperparameter {hyperparameter!r}, which means "
                "something else in a row; "
                "rename it in the method",
            )


def _check_training(spec: Spec, name: str) -> None:
    row = spec.methods[name]
    location: Location = ("methods", name, "training")
    training = named(location, lambda: spec.row_training(name))
    own = location if "optimiser" in row.training else ("training",)
    named((*own, "optimiser"), training.named_optimiser)
    if training.epochs > MOST_EPOCHS:
        own = location if "epochs" in row.training else ("training",)
        raise ProblemError(
            (*own, "epochs"), f"found {training.epochs}; at most {MOST_EPOCHS} are possible"
        )
    if training.threads > max(1, spec.resources.cpu):
        own = location if "threads" in row.training else ("training",)
        raise ProblemError(
            (*own, "threads"),
            f"found {training.threads}, but a trial has {spec.resources.cpu:g} CPU; write "
            f"resources: {{cpu: {training.threads}}}, or fewer threads",
        )


def _check_space(spec: Spec, name: str) -> None:
    row, search = spec.methods[name], spec.search
    location: Location = ("methods", name)
    if row.grid and not search.is_grid:
        raise ProblemError(
            (*location, "grid"),
            f"needs search.sampler: grid, found {search.sampler}; write grid, or use try_first for "
            "points to begin with",
        )
    if row.try_first and search.is_grid:
        raise ProblemError(
            (*location, "try_first"),
            "cannot be used with sampler: grid, which tries every point anyway; leave it out",
        )
    try:
        space = spec.space(name)
    except ValueError as error:
        raise _located(location, str(error)) from None
    problem = unsupported(search, space)
    if problem is not None:
        raise ProblemError(
            ("search", "sampler"), f"found {search.sampler!r}; row {name!r}: {problem}"
        )
    if search.is_grid:
        size = grid_size(space, search.resolution)
        if size > LARGEST_GRID:
            raise ProblemError(
                location,
                f"its grid has {size} points, more than {LARGEST_GRID}; fix some or "
                "lower search.resolution",
            )


def _located(location: Location, message: str) -> ProblemError:
    """A problem of a space, at the point or hyperparameter that it names."""
    if point := _POINT.match(message):
        return ProblemError((*location, point[1], int(point[2])), message[point.end() :])
    if own := _OWN_HYPERPARAMETER.match(message):
        return ProblemError((*location, own[1]), message[own.end() :])
    if other := _ANY_HYPERPARAMETER.search(message):
        return ProblemError((*location, other[1]), message)
    return ProblemError(location, message)
