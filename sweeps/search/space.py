"""Search spaces: the hyperparameters of a method that are fixed, and those that are searched.

Hyperparameters that a spec leaves out are searched over the method's own default domains. A
hyperparameter with a condition is searched only while the others have the values it requires, and
keeps the method's default otherwise.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from calibration.hyperparameters import (
    Choice,
    Domain,
    Hyperparameters,
    Integer,
    LogUniform,
    Uniform,
    Value,
)
from calibration.learners import learner
from sweeps.search.domains import (
    Condition,
    describe,
    extremes,
    member,
    parse_hyperparameter,
    points,
)

__all__ = ["Configuration", "Space", "extremes", "grid", "grid_size", "resolve"]

Configuration = dict[str, Value]


@dataclass(frozen=True)
class Space:
    """The hyperparameters of one method: those with a fixed value and those to search.

    ``conditions`` maps a hyperparameter to the values of others under which it is searched, those
    up the chain included; in ``searched`` a hyperparameter stands after all that switch it.
    ``grid`` holds the only points to try, if a spec lists them; ``first`` points to begin with.
    """

    fixed: Configuration
    searched: dict[str, Domain]
    conditions: dict[str, Condition] = field(default_factory=dict)
    grid: tuple[Configuration, ...] = ()
    first: tuple[Configuration, ...] = ()

    @property
    def size(self) -> float:
        """How many points there are at most; infinite with a continuous hyperparameter."""
        counts: list[float] = []
        for domain in self.searched.values():
            match domain:
                case Choice(values):
                    counts.append(len(values))
                case Integer(low, high):
                    counts.append(high - low + 1)
                case _:
                    return math.inf
        return math.prod(counts)

    def active(self, hyperparameter: str, chosen: Mapping[str, Value]) -> bool:
        """Whether ``hyperparameter`` is searched beside the values chosen so far.

        A hyperparameter that is itself left at its default switches nothing on.
        """
        conditions = self.conditions.get(hyperparameter, {})
        return all(name in chosen and chosen[name] in conditions[name] for name in conditions)

    def checked(self, point: Mapping[str, Any]) -> Configuration:
        """Some of the searched hyperparameters' values, in the domains' own types.

        Raises ``ValueError`` naming the hyperparameter and its domain if one is not searched, lies
        outside its domain or is switched off by the others.
        """
        chosen: Configuration = {}
        for name, value in point.items():
            if name in self.fixed:
                raise ValueError(f"{name!r} is fixed at {self.fixed[name]!r}; leave it out")
            if name not in self.searched:
                raise ValueError(f"{name!r} is not searched; {_known(name, self.searched)}")
            chosen[name] = member(name, self.searched[name], value)
        for name in chosen:
            if not self.active(name, chosen):
                needed = _conditions_text(self.conditions[name])
                raise ValueError(f"{name!r} is searched only when {needed}; write that beside it")
        return chosen


def resolve(
    method: str,
    written: Mapping[str, Any],
    grid: Sequence[Mapping[str, Any]] = (),
    try_first: Sequence[Mapping[str, Any]] = (),
) -> Space:
    """The space of ``method`` with the spec's overrides over its default domains.

    With a ``grid`` its points are all there is to try: hyperparameters they leave out keep their
    fixed value or default. Raises ``ValueError`` naming the hyperparameter, what was found and what
    would be right: values the method refuses, conditions that cannot hold, points outside
    their domain.
    """
    kind = learner(method).Hyperparameters
    own: dict[str, Value | Domain] = {}
    direct: dict[str, Condition] = {}
    for name, value in written.items():
        try:
            own[name], direct[name] = parse_hyperparameter(value)
        except ValueError as error:
            raise ValueError(f"hyperparameter {name!r}: {error}") from None
    fixed = {n: k for n, k in own.items() if isinstance(k, Value)}
    if grid:
        return _listed(kind, method, own, direct, grid, try_first)
    searched = {n: k for n, k in (kind.domains(own) | own).items() if not isinstance(k, Value)}
    for name, condition in _own_conditions(kind, own, searched).items():
        if condition is None:
            del searched[name]
        else:
            direct[name] = condition | direct.get(name, {})
    _check_values(kind, method, fixed, searched)
    direct = {name: _reachable(name, direct[name], kind, fixed, searched) for name in direct}
    conditions = {n: closed for n in searched if (closed := _closed(n, direct))}
    # A hyperparameter has more conditions than any that switches it, so this puts those before it.
    ordered = {n: searched[n] for n in sorted(searched, key=lambda n: len(conditions.get(n, {})))}
    space = Space(fixed, ordered, conditions)
    if kind.defaults_first and not try_first:
        return replace(space, first=_defaults(kind, space))
    return replace(space, first=_each("try_first", try_first, space.checked))


def grid(space: Space, resolution: int) -> list[Configuration]:
    """Every combination of the searched hyperparameters, each once, in a fixed order.

    Choices bring their own points; ranges are cut into ``resolution`` even steps (even in
    the logarithm for log ranges; whole numbers are rounded and kept distinct). Hyperparameters that
    are switched off are left out. A listed grid is given back as it is.
    """
    if space.grid:
        return [dict(point) for point in space.grid]
    cells: list[Configuration] = [{}]
    for name, domain in space.searched.items():
        values = points(domain, resolution)
        cells = [
            longer
            for cell in cells
            for longer in (
                [cell | {name: value} for value in values] if space.active(name, cell) else [cell]
            )
        ]
    return cells


def grid_size(space: Space, resolution: int) -> int:
    """How many points ``grid`` would give, without building them."""
    if space.grid:
        return len(space.grid)
    hyperparameters = list(space.searched.items())

    @cache
    def count(index: int, switched_on: frozenset[str]) -> int:
        if index == len(hyperparameters):
            return 1
        name, domain = hyperparameters[index]
        if name in space.conditions and name not in switched_on:
            return count(index + 1, switched_on)
        # Values that switch the same hyperparameters lead to equally many points: count them once.
        outcomes = Counter(
            frozenset(k for k in switched_on if value in space.conditions[k].get(name, (value,)))
            for value in points(domain, resolution)
        )
        return sum(times * count(index + 1, left) for left, times in outcomes.items())

    return count(0, frozenset(space.conditions))


def _listed(
    kind: type[Hyperparameters],
    method: str,
    own: Mapping[str, Value | Domain],
    direct: Mapping[str, Condition],
    grid: Sequence[Mapping[str, Any]],
    try_first: Sequence[Mapping[str, Any]],
) -> Space:
    """The space of a listed grid: every hyperparameter a choice among the values in the points."""
    if try_first:
        raise ValueError("try_first: a listed grid has its own order; leave 'try_first' out")
    fixed = {n: k for n, k in own.items() if isinstance(k, Value)}
    written = Space(fixed, {n: k for n, k in own.items() if not isinstance(k, Value)})

    def checked(point: Mapping[str, Any]) -> Configuration:
        if not point:
            raise ValueError(
                "found an empty point; write at least one hyperparameter, e.g. {lr: 0.1}"
            )
        inside = written.checked({n: v for n, v in point.items() if n in own})
        kind.checked(fixed | dict(point), f"method {method!r}")
        return dict(point) | inside

    listed = _each("grid", grid, checked)
    for index, point in enumerate(listed):
        if point in listed[:index]:
            raise ValueError(f"grid[{index}]: {point!r} is listed twice; keep one")
    for name in written.searched:
        if direct[name]:
            raise ValueError(
                f"hyperparameter {name!r}: in a grid the points say when it is set; no 'when'"
            )
        if not any(name in point for point in listed):
            raise ValueError(
                f"hyperparameter {name!r}: no point of the grid sets it; fix it or write "
                "it in the points"
            )
    names = dict.fromkeys(name for point in listed for name in point)
    values = {n: tuple(dict.fromkeys(p[n] for p in listed if n in p)) for n in names}
    return Space(fixed, {n: Choice(values[n]) for n in names}, grid=listed)


def _defaults(kind: type[Hyperparameters], space: Space) -> tuple[Configuration, ...]:
    """The defaults as a point to begin with, as far as they lie in the space."""
    point: Configuration = {}
    for name, domain in space.searched.items():
        default = kind.model_fields[name].default if name in kind.model_fields else None
        try:
            inside = {name: member(name, domain, default)}
        except ValueError:
            continue
        if space.active(name, point):
            point |= inside
    return (point,) if point else ()


def _each(
    place: str,
    written: Sequence[Mapping[str, Any]],
    check: Callable[[Mapping[str, Any]], Configuration],
) -> tuple[Configuration, ...]:
    found = []
    for index, point in enumerate(written):
        try:
            found.append(check(point))
        except ValueError as error:
            raise ValueError(f"{place}[{index}]: {error}") from None
    return tuple(found)


def _own_conditions(
    kind: type[Hyperparameters], own: Mapping[str, Value | Domain], searched: Mapping[str, Domain]
) -> dict[str, Condition | None]:
    """The conditions that the method itself declares; None where one can never hold.

    Raises ``ValueError`` for a hyperparameter that the spec sets though it has no effect.
    """
    found: dict[str, Condition | None] = {}
    for name, when in kind.conditions().items():
        domain = searched.get(when.other)
        fixed = own.get(when.other, kind.model_fields[when.other].default)
        values = domain.values if isinstance(domain, Choice) else (fixed,)
        if when.value in values:
            found[name] = {when.other: (when.value,)}
        elif name in own:
            raise ValueError(
                f"hyperparameter {name!r}: has an effect only when {when.other}: {when.value}; "
                f"leave {name!r} out or write {when.other}: {when.value} beside it"
            )
        else:
            found[name] = None
    return {name: condition for name, condition in found.items() if name in searched}


def _check_values(
    kind: type[Hyperparameters],
    method: str,
    fixed: Mapping[str, Value],
    searched: Mapping[str, Domain],
) -> None:
    required = {
        name: extremes(domain)[0]
        for name, domain in searched.items()
        if name in kind.model_fields and kind.model_fields[name].is_required()
    }
    base = {**required, **fixed}
    kind.checked(base, f"method {method!r}")
    for name, domain in searched.items():
        for value in extremes(domain):
            kind.checked({**base, name: value}, f"method {method!r}")


def _reachable(
    hyperparameter: str,
    condition: Condition,
    kind: type[Hyperparameters],
    fixed: Mapping[str, Value],
    searched: Mapping[str, Domain],
) -> Condition:
    """The part of a condition that the search decides; the rest holds whatever it does."""
    left: Condition = {}
    for other, values in condition.items():
        wanted = _conditions_text({other: values})
        at = f"hyperparameter {hyperparameter!r}: its 'when' asks for {wanted}"
        if other not in kind.model_fields:
            raise ValueError(f"{at}; unknown hyperparameter: {_known(other, kind.model_fields)}")
        domain = searched.get(other)
        if domain is None:
            value = fixed[other] if other in fixed else kind.model_fields[other].default
            if value not in values:
                raise ValueError(f"{at}, which can never hold: {other!r} is always {value!r}")
        elif isinstance(domain, Uniform | LogUniform):
            raise ValueError(
                f"{at}, a value that {describe(domain)} almost never takes; make {other!r} a choice"
            )
        else:
            try:
                left[other] = tuple(member(other, domain, value) for value in values)
            except ValueError as error:
                raise ValueError(f"{at}, which can never hold: {error}") from None
    return left


def _closed(
    hyperparameter: str, direct: Mapping[str, Condition], path: tuple[str, ...] = ()
) -> Condition:
    """What must hold for ``hyperparameter`` to be searched, all the way up the chain."""
    if hyperparameter in path:
        circle = " → ".join((*path[path.index(hyperparameter) :], hyperparameter))
        raise ValueError(
            f"hyperparameter {hyperparameter!r}: its 'when' leads back to itself: {circle}"
        )
    closed: Condition = {}
    for other, values in direct.get(hyperparameter, {}).items():
        for name, allowed in (
            *_closed(other, direct, (*path, hyperparameter)).items(),
            (other, values),
        ):
            both = tuple(v for v in closed.get(name, allowed) if v in allowed)
            if not both:
                raise ValueError(
                    f"hyperparameter {hyperparameter!r}: its conditions can never hold "
                    f"together: {name!r} would "
                    f"have to be {closed[name]!r} and {allowed!r} at once"
                )
            closed[name] = both
    return closed


def _conditions_text(condition: Condition) -> str:
    return " and ".join(
        f"{name}: {values[0] if len(values) == 1 else list(values)!r}"
        for name, values in condition.items()
    )


def _known(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}"
