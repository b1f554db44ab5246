"""Typed hyperparameters: a default, bounds and a default search domain for each.

A method declares its hyperparameters once::

    class FocalHyperparameters(Hyperparameters):
        gamma: Annotated[float, Field(ge=0, le=20), Uniform(0.5, 5.0)] = 2.0

Pydantic checks values against the type and the bounds; the domain is what a sweep
searches when the user names none.
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
class Instead:
    """While another hyperparameter has this value, ``domain`` replaces the usual one."""

    other: str
    value: Value
    domain: Domain


@dataclass(frozen=True)
class When:
    """The hyperparameter has an effect, and is searched, only while another has this value."""

    other: str
    value: Value


class SettingError(ValueError):
    """Raised when settings are unknown, of the wrong type or out of bounds."""


class Settings(BaseModel):
    """Named values a user may set; immutable, unknown names are refused."""

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
        """Turn pydantic's most telling complaint into one line a person can act on."""
        # A mistyped name is both unknown and missing: the unknown one tells more.
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
    """Base of every learner's hyperparameters: a number must be one, not a word or a boolean."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True)
    noun: ClassVar[str] = "hyperparameter"
    defaults_first: ClassVar[bool] = False
    """Whether a search begins with the defaults, unless a spec says what it begins with."""

    @classmethod
    def domains(cls, beside: Mapping[str, Value | Domain] | None = None) -> dict[str, Domain]:
        """The default search domain of every hyperparameter that has one.

        ``beside`` holds what a spec fixes or searches otherwise. Raises ``ValueError`` if a
        domain depends on a hyperparameter that is searched.
        """
        usual = {
            name: domain
            for name, field in cls.model_fields.items()
            for domain in field.metadata
            if isinstance(domain, Choice | Uniform | LogUniform | Integer)
        }
        replaced = {
            name: instead.domain
            for name in usual
            if name not in (beside or {})
            for instead in cls.replacements(name)
            if cls._replaces(name, instead, beside or {})
        }
        return usual | replaced

    @classmethod
    def replacements(cls, name: str) -> list[Instead]:
        """The domains that a hyperparameter has beside certain values of others."""
        return [entry for entry in cls.model_fields[name].metadata if isinstance(entry, Instead)]

    @classmethod
    def _replaces(cls, name: str, instead: Instead, beside: Mapping[str, Value | Domain]) -> bool:
        value = beside.get(instead.other, cls.model_fields[instead.other].default)
        if isinstance(value, Value):
            return bool(value == instead.value)
        raise ValueError(
            f"hyperparameter {name!r}: its default range depends on {instead.other!r}, which is "
            f"searched; write a range for {name!r}, or a row for each value of {instead.other!r}"
        )

    @classmethod
    def conditions(cls) -> dict[str, When]:
        """Of every hyperparameter that has an effect only beside a certain value of another."""
        return {
            name: condition
            for name, field in cls.model_fields.items()
            for condition in field.metadata
            if isinstance(condition, When)
        }
