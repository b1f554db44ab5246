"""What a training method declares: a line about itself, its knobs and their domains."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, get_origin

from pydantic.fields import FieldInfo

from calibration.hyperparameters import Choice, Domain, SettingError, Value
from calibration.methods import Method, MethodHyperparameters
from calibration.testing.contract import require, require_error


def check_declaration(method: type[Method]) -> None:
    """Raise ``ContractError`` if a listing, a sweep or a user's mistake would come to harm.

    Every knob has a default; defaults and the ends of every domain are valid; unknown knobs,
    wrong types and values beyond the bounds raise ``SettingError`` with the method's name,
    the knob and the value.
    """
    about = method.__name__
    description = getattr(method, "description", "")
    one_line = isinstance(description, str) and description != "" and "\n" not in description
    require(one_line, about, "description must be one line")
    require(not inspect.isabstract(method), about, "must write step (or a LossMethod loss)")
    version = method.version
    whole = isinstance(version, int) and not isinstance(version, bool) and version >= 1
    require(whole, about, f"version must be a whole number from 1, found {version!r}")
    names = method.inference_state
    listed = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
    require(listed, about, f"inference_state must be a tuple of names, found {names!r}")
    knobs = method.Hyperparameters
    derived = issubclass(knobs, MethodHyperparameters)
    require(derived, about, "Hyperparameters must be a subclass of MethodHyperparameters")
    _check_valid(knobs, about)
    _check_refused(knobs, about)


def _check_valid(knobs: type[MethodHyperparameters], about: str) -> None:
    for name, field in knobs.model_fields.items():
        require(not field.is_required(), about, f"hyperparameter {name!r} must have a default")
    # Pydantic takes a default as it is: written out and read in, it is checked like any value.
    _require_accepted(knobs, knobs().model_dump(), about, "the defaults")
    for name, domain in knobs.domains().items():
        for value in _ends(domain):
            _require_accepted(knobs, {name: value}, about, f"{domain}, the domain of {name!r},")


def _require_accepted(
    knobs: type[MethodHyperparameters], values: dict[str, Any], about: str, what: str
) -> None:
    try:
        knobs.checked(values, about)
    except SettingError as error:
        require(False, about, f"{what} must be valid: {error}")


def _ends(domain: Domain) -> tuple[Value, ...]:
    return domain.values if isinstance(domain, Choice) else (domain.low, domain.high)


def _check_refused(knobs: type[MethodHyperparameters], about: str) -> None:
    for name, value, what in _mistakes(knobs):
        call = partial(knobs.checked, {name: value}, about)
        words = (about, name) if name not in knobs.model_fields else (about, name, repr(value))
        require_error(call, SettingError, words, about, f"{what} ({name} = {value!r})")


def _mistakes(knobs: type[MethodHyperparameters]) -> Iterator[tuple[str, Any, str]]:
    """Knob, bad value, and what is wrong with it."""
    yield "no_such_knob", 1.0, "an unknown hyperparameter"
    for name, field in knobs.model_fields.items():
        default = field.default
        if isinstance(default, bool):
            yield name, "yes", "a word for a boolean"
        elif isinstance(default, int | float):
            yield name, "1", "a word for a number"
            yield name, True, "a boolean for a number"
        elif isinstance(default, str):
            yield name, 1.5, "a number for a word"
        if get_origin(field.annotation) is Literal:
            yield name, "no_such_choice", "a word that is no choice"
        if isinstance(default, float):
            yield name, float("nan"), "no number"
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
