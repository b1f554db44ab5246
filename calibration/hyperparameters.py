"""Typed hyperparameters, each with a default, bounds and a default search domain.

A method declares its hyperparameters once::

    class FocalHyperparameters(Hyperparameters):
        gamma: Annotated[float, Field(ge=0, le=20), Uniform(0.5, 5.0)] = 2.0

Pydantic checks values against the type and the bounds; the domain is what a sweep
searches if the user specifies none.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

Value = bool | int | float | str


@dataclass(frozen=True)
class Choice:
    """One of a few values, in the order given."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Uniform:
    """A real number in [low, high]."""

    low: float
    high: float


@dataclass(frozen=True)
class LogUniform:
    """A positive real number in [low, high], uniform in its logarithm."""

    low: float
    high: float


@dataclass(frozen=True)
class Integer:
    """A whole number in [low, high]; ``log`` spreads it uniformly in its logarithm."""

    low: int
    high: int
    log: bool = False


Domain = Choice | Uniform | LogUniform | Integer


@dataclass(frozen=True)
class When:
    """The domain that applies while another hyperparameter has this value.

    It replaces the usual domain. Without a usual domain, the hyperparameter has an effect, and is
    searched, only then; without any domain, it is not searched unless a spec asks for it.
    """

    other: str
    value: Value
    domain: Domain | None = None


class SettingError(ValueError):
    """Raised when settings are unknown, of the wrong type or out of bounds."""


class Settings(BaseModel):
    """Named values a user may set; immutable. Unknown names are rejected."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False
    )
    noun: ClassVar[str] = "setting"

    @classmethod
    def checked(cls, values: dict[str, Any], owner: str) -> Self:
        """Build from plain values.

        Raises ``SettingError`` naming ``owner``, the setting, the value and the remedy.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingError(f"{owner}: {cls.explain(error)}") from None

    @classmethod
    def explain(cls, error: ValidationError) -> str:
        """Turn pydantic's most informative error into one line that a user can act on."""
        # A mistyped name is reported as unknown and as missing: the former is more informative.
        first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, cls.model_fields, n=1, cutoff=0.6)
            remedy = (
                f"did you mean {near[0]!r}?"
                if near
                else f"known: {', '.join(sorted(cls.model_fields)) or 'none'}"
            )
            return f"unknown {cls.noun} {name!r}; {remedy}"
        if first["type"] == "missing":
            return f"{cls.noun} {name!r} is required"
        return f"{cls.noun} {name!r} = {first['input']!r}: {first['msg'].lower()}"


class Hyperparameters(Settings):
    """Base of every learner's hyperparameters; strict: strings and booleans are not numbers."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True)
    noun: ClassVar[str] = "hyperparameter"
    defaults_first: ClassVar[bool] = False
    """Whether a search starts with the defaults, unless a spec states what it starts with."""

    @classmethod
    def domains(cls, beside: Mapping[str, Value | Domain] | None = None) -> dict[str, Domain]:
        """The default search domain of every hyperparameter that has one.

        ``beside`` holds the values and domains given by a spec. Raises ``ValueError`` if a
        domain depends on a hyperparameter that is searched.
        """
        found = {n: when.domain for n, when in cls.conditions().items() if when.domain is not None}
        found |= cls._usual_domains()
        for name in [name for name in found if name not in (beside or {})]:
            for when, domain in cls.replacements(name):
                if cls._replaces(name, when, beside or {}):
                    found[name] = domain
        return {name: found[name] for name in cls.model_fields if name in found}

    @classmethod
    def replacements(cls, name: str) -> list[tuple[When, Domain]]:
        """The conditions under which another domain replaces the usual one, with that domain."""
        if name not in cls._usual_domains():
            return []
        return [(when, when.domain) for when in cls._whens(name) if when.domain is not None]

    @classmethod
    def conditions(cls) -> dict[str, When]:
        """The condition of every hyperparameter that takes effect only for a value of another."""
        usual = cls._usual_domains()
        return {n: when for n in cls.model_fields if n not in usual for when in cls._whens(n)}

    @classmethod
    def _usual_domains(cls) -> dict[str, Domain]:
        return {
            name: domain
            for name, field in cls.model_fields.items()
            for domain in field.metadata
            if isinstance(domain, Domain)
        }

    @classmethod
    def _whens(cls, name: str) -> list[When]:
        return [entry for entry in cls.model_fields[name].metadata if isinstance(entry, When)]

    @classmethod
    def _replaces(cls, name: str, when: When, beside: Mapping[str, Value | Domain]) -> bool:
        value = beside.get(when.other, cls.model_fields[when.other].default)
        if isinstance(value, Value):
            return bool(value == when.value)
        raise ValueError(
            f"hyperparameter {name!r}: its default range depends on {when.other!r}, which is "
            f"searched; write a range for {name!r}, or a row for each value of {when.other!r}"
        )
