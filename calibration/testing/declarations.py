"""The declarations of a method or estimator: description, hyperparameters and their domains."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, get_origin

from pydantic.fields import FieldInfo

from calibration.hyperparameters import Choice, Domain, Hyperparameters, SettingError, Value
from calibration.learners import Estimator
from calibration.learners.estimator_training import ABOUT_ESTIMATOR
from calibration.methods import Method, MethodHyperparameters
from calibration.testing.contract import require, require_complexity, require_error


def check_declaration(method: type[Method]) -> None:
    """Raise ``ContractError`` for declarations that break a listing, a sweep or error messages.

    Every hyperparameter has a default; defaults and the ends of every domain are valid; unknown
    hyperparameters, wrong types and values beyond the bounds raise ``SettingError`` with the
    method's name, the hyperparameter and the value.
    """
    about = method.__name__
    require(not inspect.isabstract(method), about, "must write step (or a LossMethod loss)")
    _check_listed(method, about)
    names = method.inference_state
    listed = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
    require(listed, about, f"inference_state must be a tuple of names, found {names!r}")
    hyperparameters = method.Hyperparameters
    derived = issubclass(hyperparameters, MethodHyperparameters)
    require(derived, about, "Hyperparameters must be a subclass of MethodHyperparameters")
    _check_valid(hyperparameters, about)
    _check_refused(hyperparameters, about)


def check_estimator_declaration(estimator: type[Estimator]) -> None:
    """The same for an estimator, which also declares the name of its file."""
    about = estimator.__name__
    require(not inspect.isabstract(estimator), about, "must write fit, scores, save and load")
    _check_listed(estimator, about)
    file = getattr(estimator, "file", "")
    named = bool(file) and "/" not in file and file != ABOUT_ESTIMATOR
    require(named, about, f"file must be the name of a file, found {file!r}")
    _check_valid(estimator.Hyperparameters, about)
    _check_refused(estimator.Hyperparameters, about)


def _check_listed(kind: type[Method] | type[Estimator], about: str) -> None:
    description = getattr(kind, "description", "")
    one_line = isinstance(description, str) and description != "" and "\n" not in description
    require(one_line, about, "description must be one line")
    version = kind.version
    whole = isinstance(version, int) and not isinstance(version, bool) and version >= 1
    require(whole, about, f"version must be a whole number from 1, found {version!r}")
    require_complexity(kind.complexity, about)


def _check_valid(hyperparameters: type[Hyperparameters], about: str) -> None:
    for name, field in hyperparameters.model_fields.items():
        require(not field.is_required(), about, f"hyperparameter {name!r} must have a default")
    # Pydantic does not validate defaults: dumped and parsed, they are checked like any value.
    _require_accepted(hyperparameters, hyperparameters().model_dump(), about, "the defaults")
    for name, domain in hyperparameters.domains().items():
        _check_domain(hyperparameters, {}, name, domain, about)
    for name in hyperparameters.model_fields:
        for when, domain in hyperparameters.replacements(name):
            beside = {when.other: when.value}
            _check_domain(hyperparameters, beside, name, domain, about)


def _check_domain(
    hyperparameters: type[Hyperparameters],
    beside: dict[str, Value],
    name: str,
    domain: Domain,
    about: str,
) -> None:
    for value in _ends(domain):
        what = f"{domain}, the domain of {name!r},"
        _require_accepted(hyperparameters, beside | {name: value}, about, what)


def _require_accepted(
    hyperparameters: type[Hyperparameters], values: dict[str, Any], about: str, what: str
) -> None:
    try:
        hyperparameters.checked(values, about)
    except SettingError as error:
        require(False, about, f"{what} must be valid: {error}")


def _ends(domain: Domain) -> tuple[Value, ...]:
    return domain.values if isinstance(domain, Choice) else (domain.low, domain.high)


def _check_refused(hyperparameters: type[Hyperparameters], about: str) -> None:
    for name, value, what in _mistakes(hyperparameters):
        call = partial(hyperparameters.checked, {name: value}, about)
        words = (
            (about, name)
            if name not in hyperparameters.model_fields
            else (about, name, repr(value))
        )
        require_error(call, SettingError, words, about, f"{what} ({name} = {value!r})")


def _mistakes(hyperparameters: type[Hyperparameters]) -> Iterator[tuple[str, Any, str]]:
    """Hyperparameters, bad values, and what is wrong with them."""
    yield "no_such_hyperparameter", 1.0, "an unknown hyperparameter"
    for name, field in hyperparameters.model_fields.items():
        default = field.default
        if isinstance(default, bool):
            yield name, "yes", "a word for a boolean"
        elif isinstance(default, int | float):
            yield name, "1", "a word for a number"
            yield name, True, "a boolean for a number"
        elif isinstance(default, str):
            yield name, 1.5, "a number for a word"
        if get_origin(field.annotation) is Literal:
            yield name, "no_such_choice", "a word that is not a choice"
        if isinstance(default, float):
            yield name, float("nan"), "NaN"
        for value in _beyond(field):
            yield name, value, "a value out of bounds"


def _beyond(field: FieldInfo) -> Iterator[Any]:
    """Values just outside the bounds that the field declares."""
    outside = {"gt": 0, "ge": -1, "lt": 0, "le": 1}
    for bound in field.metadata:
        for name, step in outside.items():
            limit = getattr(bound, name, None)
            if limit is not None:
                yield limit + step
