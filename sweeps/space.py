"""Search spaces: what a spec writes for a knob, and what the search makes of it.

In a spec a knob is a plain value (fixed), a list (a choice), or one of
``{uniform: [low, high]}``, ``{loguniform: [low, high]}``, ``{integer: [low, high]}``,
``{choice: [...]}``. Knobs that a spec leaves out are searched over the method's own
default domains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calibration.hyperparameters import Choice, Domain, Integer, LogUniform, Uniform, Value
from calibration.methods import METHODS

DOMAIN_FORMS = "a value, a list, {uniform|loguniform|integer: [low, high]} or {choice: [...]}"


@dataclass(frozen=True)
class Space:
    """The knobs of one method: those with a fixed value and those to search."""

    fixed: dict[str, Value]
    searched: dict[str, Domain]


def parse_domain(written: Any) -> Value | Domain:
    """A fixed value or a domain from its form in a spec.

    Raises ``ValueError`` saying what was found and which forms are possible.
    """
    if isinstance(written, bool | int | float | str):
        return written
    if isinstance(written, list | tuple):
        return _choice(written)
    if isinstance(written, Mapping) and len(written) == 1:
        ((form, argument),) = written.items()
        makers: dict[str, Callable[[Any], Domain]] = {
            "choice": _choice,
            "uniform": lambda bounds: Uniform(*_bounds(bounds, "uniform")),
            "loguniform": lambda bounds: LogUniform(*_bounds(bounds, "loguniform")),
            "integer": lambda bounds: Integer(*_whole_bounds(bounds)),
        }
        if form in makers:
            return makers[form](argument)
    raise ValueError(f"found {written!r}; write {DOMAIN_FORMS}")


def resolve(method: str, written: Mapping[str, Any]) -> Space:
    """The space of ``method`` with the spec's overrides over its default domains."""
    knobs: dict[str, Value | Domain] = dict(METHODS[method].Hyperparameters.domains())
    knobs |= {name: parse_domain(value) for name, value in written.items()}
    return Space(
        fixed={n: k for n, k in knobs.items() if isinstance(k, Value)},
        searched={n: k for n, k in knobs.items() if not isinstance(k, Value)},
    )


def extremes(domain: Value | Domain) -> list[Value]:
    """The values whose validity implies that of all: every choice, or both ends."""
    if isinstance(domain, Choice):
        return list(domain.values)
    if isinstance(domain, Uniform | LogUniform | Integer):
        return [domain.low, domain.high]
    return [domain]


def grid(space: Space, resolution: int) -> list[dict[str, Value]]:
    """Every combination of the searched knobs, each once, in a fixed order.

    Choices bring their own points; ranges are cut into ``resolution`` even steps (even in
    the logarithm for log ranges; whole numbers are rounded and kept distinct).
    """
    axes = [[(name, p) for p in _points(d, resolution)] for name, d in space.searched.items()]
    return [dict(cell) for cell in itertools.product(*axes)]


def _points(domain: Domain, resolution: int) -> list[Value]:
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


def grid_size(space: Space, resolution: int) -> int:
    """How many points ``grid`` would give."""
    return math.prod(len(_points(d, resolution)) for d in space.searched.values())


def _choice(values: Any) -> Choice:
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"found {values!r}; a choice needs at least one value, e.g. [1, 2, 5]")
    for value in values:
        if not isinstance(value, Value):
            raise ValueError(f"found {value!r} among the choices; write numbers, words or booleans")
    distinct = list(dict.fromkeys((type(v), v) for v in values))
    if len(distinct) != len(values):
        raise ValueError(f"found {list(values)!r}; a value stands there twice")
    return Choice(tuple(values))


def _bounds(bounds: Any, form: str) -> tuple[float, float]:
    if (
        not isinstance(bounds, list | tuple)
        or len(bounds) != 2
        or any(isinstance(b, bool) or not isinstance(b, int | float) for b in bounds)
    ):
        raise ValueError(f"found {bounds!r}; {form} needs two numbers [low, high]")
    low, high = float(bounds[0]), float(bounds[1])
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"found {bounds!r}; both bounds must be finite")
    if low >= high:
        raise ValueError(f"found {bounds!r}; low must be below high")
    if form == "loguniform" and low <= 0:
        raise ValueError(f"found {bounds!r}; loguniform needs low > 0")
    return low, high


def _whole_bounds(bounds: Any) -> tuple[int, int]:
    low, high = _bounds(bounds, "integer")
    if low != int(low) or high != int(high):
        raise ValueError(f"found {bounds!r}; integer needs whole numbers")
    return int(low), int(high)
