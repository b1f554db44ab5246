"""A hyperparameter in a spec: a value or a domain, possibly with a condition.

A plain value is fixed, a list is a choice; the other forms are ``{choice: [...]}``,
``{uniform: [low, high]}``, ``{loguniform: [low, high]}`` and ``{integer: [low, high]}`` (with
``log: true`` if wanted). A mapping may add ``when: {other_hyperparameter: value or list}``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calibration.hyperparameters import Choice, Domain, Integer, LogUniform, Uniform, Value

Condition = dict[str, tuple[Value, ...]]

DOMAIN_FORMS = (
    "a value, a list, {uniform|loguniform|integer: [low, high]} or {choice: [...]}, "
    "the mappings with 'when: {other_hyperparameter: value}' if wanted"
)
# Beyond it not every whole number is a float, and samplers compute in floats.
LARGEST_WHOLE = 2**53


def parse_hyperparameter(written: Any) -> tuple[Value | Domain, Condition]:
    """A fixed value or a domain from its form in a spec, and when it is searched ({}: always).

    Raises ``ValueError`` saying what was found and which forms are possible.
    """
    if isinstance(written, Value):
        return written, {}
    if isinstance(written, list | tuple):
        return _choice(written), {}
    if isinstance(written, Mapping):
        rest = {key: value for key, value in written.items() if key not in ("when", "log")}
        form = next(iter(rest), None)
        if len(rest) == 1 and ("log" not in written or form == "integer"):
            when = _when(written["when"]) if "when" in written else {}
            if form == "choice":
                return _choice(rest[form]), when
            if form == "integer":
                return _integer(rest[form], written.get("log", False)), when
            if form in ("uniform", "loguniform"):
                make = Uniform if form == "uniform" else LogUniform
                return make(*_bounds(rest[form], form)), when
    raise ValueError(f"found {written!r}; write {DOMAIN_FORMS}")


def extremes(domain: Value | Domain) -> list[Value]:
    """The values whose validity implies that of all: every choice, or both ends."""
    if isinstance(domain, Choice):
        return list(domain.values)
    if isinstance(domain, Uniform | LogUniform | Integer):
        return [domain.low, domain.high]
    return [domain]


def member(name: str, domain: Domain, value: Any) -> Value:
    """``value`` in the domain's own type; raises ``ValueError`` if it lies outside."""
    if isinstance(domain, Choice):
        if isinstance(value, Value) and value in domain.values:
            return domain.values[domain.values.index(value)]
    elif (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and domain.low <= value <= domain.high
    ):
        if not isinstance(domain, Integer):
            return float(value)
        if value == int(value):
            return int(value)
    raise ValueError(f"{name!r} = {value!r} lies outside its domain {describe(domain)}")


def describe(domain: Domain) -> str:
    """The domain as a spec would write it."""
    match domain:
        case Choice(values):
            return f"{{choice: {list(values)!r}}}"
        case Uniform(low, high):
            return f"{{uniform: [{low:g}, {high:g}]}}"
        case LogUniform(low, high):
            return f"{{loguniform: [{low:g}, {high:g}]}}"
        case Integer(low, high, log):
            return f"{{integer: [{low}, {high}]{', log: true' if log else ''}}}"


def written(domain: Domain) -> dict[str, Any]:
    """The form in which a spec writes a domain: ``parse_hyperparameter`` reads it."""
    match domain:
        case Choice(values):
            return {"choice": list(values)}
        case Integer(low, high, log):
            return {"integer": [low, high], "log": log}
        case Uniform(low, high):
            return {"uniform": [low, high]}
        case LogUniform(low, high):
            return {"loguniform": [low, high]}


def points(domain: Domain, resolution: int) -> list[Value]:
    """A domain's points on a grid: its choices, or ``resolution`` even steps, ends included."""
    if isinstance(domain, Choice):
        return list(domain.values)
    low, high = domain.low, domain.high
    log = isinstance(domain, LogUniform) or (isinstance(domain, Integer) and domain.log)
    steps = [i / max(resolution - 1, 1) for i in range(resolution)] if resolution > 1 else [0.5]
    if log:
        values = [math.exp(math.log(low) + s * (math.log(high) - math.log(low))) for s in steps]
    else:
        values = [low + s * (high - low) for s in steps]
    # Rounding may carry an end past its bound, where the method would refuse it.
    values = [min(max(v, low), high) for v in values]
    if isinstance(domain, Integer):
        return list(dict.fromkeys(round(v) for v in values))
    return list(values)


def _when(written: Any) -> Condition:
    if not isinstance(written, Mapping) or not written:
        raise ValueError(
            f"found {written!r} after 'when'; write {{other_hyperparameter: value or list}}"
        )
    condition: Condition = {}
    for name, values in written.items():
        listed = values if isinstance(values, list | tuple) else [values]
        if not isinstance(name, str) or not listed or any(not isinstance(v, Value) for v in listed):
            raise ValueError(
                f"found {{{name!r}: {values!r}}} after 'when'; write another "
                "hyperparameter's name and a "
                "value of it, or a list of values"
            )
        condition[name] = tuple(listed)
    return condition


def _choice(values: Any) -> Choice:
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"found {values!r}; a choice needs at least one value, e.g. [1, 2, 5]")
    for value in values:
        if not isinstance(value, Value):
            raise ValueError(f"found {value!r} among the choices; write numbers, words or booleans")
    if len(set(values)) != len(values):
        raise ValueError(f"found {list(values)!r}; a value is listed twice")
    return Choice(tuple(values))


def _bounds(bounds: Any, form: str) -> tuple[float, float]:
    if (
        not isinstance(bounds, list | tuple)
        or len(bounds) != 2
        or any(isinstance(b, bool) or not isinstance(b, int | float) for b in bounds)
    ):
        raise ValueError(f"found {bounds!r}; {form} needs two numbers [low, high]")
    try:
        low, high = float(bounds[0]), float(bounds[1])
    except OverflowError:
        raise ValueError(f"found {bounds!r}; both bounds must be below 1e308") from None
    if not math.isfinite(high - low):
        raise ValueError(f"found {bounds!r}; both bounds and their distance must be finite")
    if low >= high:
        raise ValueError(f"found {bounds!r}; low must be below high")
    if form == "loguniform" and low <= 0:
        raise ValueError(f"found {bounds!r}; loguniform needs low > 0")
    return low, high


def _integer(bounds: Any, log: Any) -> Integer:
    low, high = _bounds(bounds, "integer")
    if low != int(low) or high != int(high):
        raise ValueError(f"found {bounds!r}; integer needs whole numbers")
    if max(abs(low), abs(high)) > LARGEST_WHOLE:
        raise ValueError(f"found {bounds!r}; whole numbers go up to {LARGEST_WHOLE}")
    if not isinstance(log, bool):
        raise ValueError(f"found {log!r} for 'log'; write true or false")
    if log and low < 1:
        raise ValueError(f"found {bounds!r}; with log: true integer needs low ≥ 1")
    return Integer(int(low), int(high), log)
