"""Every setting of a spec with its value, unit and meaning, including defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from calibration.models import MODELS
from sweeps.host.secrets import masked
from sweeps.search.config import SearchObjective
from sweeps.spec.descriptions import Note, note
from sweeps.spec.schema import Component, Spec

LISTED_ELSEWHERE = ("datasets", "methods", "table")
_SHORT_FORMS = {"scheduler": "name", "tracking": "uri", "protocol": "name", "model": "name"}


class Setting(NamedTuple):
    """One line of ``calsweep check``; ``default``: the spec does not set it."""

    field: str
    value: str
    unit: str
    default: bool
    description: str


def settings(spec: Spec, written: Mapping[str, Any]) -> list[Setting]:
    """All settings of a spec, nested ones as ``training.epochs``, in the schema's order.

    ``written`` is the spec's YAML as plain values. What is listed elsewhere (datasets,
    methods, a published table) is left out.
    """
    found: list[Setting] = []
    for name in Spec.model_fields:
        if name in LISTED_ELSEWHERE:
            continue
        value, given = getattr(spec, name), written.get(name)
        if isinstance(value, Component):
            found += _choice(name, value, given, note(Spec, name))
        elif isinstance(value, BaseModel):
            standard = Spec.model_fields[name].default
            found += _nested(spec, name, value, standard, _as_mapping(name, given))
        else:
            is_default = name not in written
            found.append(_setting(spec, name, value, note(Spec, name), default=is_default))
    return found


def _nested(
    spec: Spec, prefix: str, value: BaseModel, standard: BaseModel, given: Mapping[str, Any]
) -> Iterator[Setting]:
    for name in type(value).model_fields:
        inner = getattr(value, name)
        # A named protocol has values that are neither written nor defaults.
        is_default = name not in given and inner == getattr(standard, name)
        yield _setting(spec, f"{prefix}.{name}", inner, note(type(value), name), default=is_default)


def _choice(name: str, value: Component, given: Any, about: Note) -> Iterator[Setting]:
    yield Setting(name, value.name, about.unit, given is None, about.text)
    if value.name not in MODELS:
        for option, chosen in value.options.items():
            yield Setting(f"{name}.{option}", as_text(chosen), "", False, "an option of its own")
        return
    options = MODELS[value.name].checked(value.options, f"model {value.name!r}")
    for option in type(options).model_fields:
        about = note(type(options), option)
        shown = as_text(getattr(options, option))
        yield Setting(
            f"{name}.{option}", shown, about.unit, option not in value.options, about.text
        )


def _as_mapping(name: str, given: Any) -> Mapping[str, Any]:
    if isinstance(given, str):
        return {_SHORT_FORMS[name]: given}
    return given if isinstance(given, Mapping) else {}


def _setting(spec: Spec, field: str, value: Any, about: Note, *, default: bool) -> Setting:
    if value is None:
        value = _left_open(spec, field)
    unit = about.unit if isinstance(value, int | float | tuple) else ""
    return Setting(field, masked(as_text(value)), unit, default, about.text)


def _left_open(spec: Spec, field: str) -> Any:
    """The meaning of a field without a value."""
    limit = "as many as the grid has" if spec.search.is_grid else spec.search.limit
    return {
        "search.trials": limit,
        "search.seed": spec.seed,
        "tracking.uri": "sqlite in the store",
        "tracking.experiment": spec.name,
        "scheduler.grace": "a tenth of the epochs",
    }.get(field)


def as_text(value: Any) -> str:
    """A value of a setting as a spec would have it: ``none``, ``true``, ``64, 64``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, SearchObjective):
        return value.metric
    if isinstance(value, list | tuple):
        return ", ".join(as_text(item) for item in value) or "none"
    return str(value)
