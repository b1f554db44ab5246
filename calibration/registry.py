"""Registries of what a spec can name: methods, calibrators, datasets, models.

There is one way to add an entry: write it in its own file and decorate it with the
registry's ``register``. Packages outside this repository do the same through an
entry point in the registry's group, or without any packaging by the import path
``package.module:Name``.
"""

from __future__ import annotations

import difflib
import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class UnknownNameError(ValueError):
    """Raised when a name is not registered; the message suggests the nearest ones."""


class Registry(Generic[T]):
    """A mapping from names to registered entries of one kind.

    ``kind`` is the word used in messages ("method"); ``group`` is the entry-point
    group through which other packages register theirs ("calsweep.methods"). Iteration is
    by name, or if ``ordered`` in the order of registration. An entry whose name ends in a
    colon stands for a whole family: ``timm:`` for every ``timm:NAME``.
    """

    def __init__(self, kind: str, group: str, *, ordered: bool = False) -> None:
        self.kind = kind
        self.group = group
        self.ordered = ordered
        self._entries: dict[str, T] = {}
        self._broken: dict[str, str] = {}
        self._entry_points_loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that makes an object available under ``name``.

        Raises ``ValueError`` if another object already has that name.
        """

        def add(thing: T) -> T:
            if name in self._entries and self._entries[name] is not thing:
                raise ValueError(f"two {self.kind}s are registered as {name!r}")
            self._entries[name] = thing
            return thing

        return add

    def __getitem__(self, name: str) -> T:
        """Look up a registered name or an import path ``package.module:Name``.

        Raises ``UnknownNameError`` naming the nearest registered names.
        """
        family = self._family(name)
        if ":" in name and family not in self._entries:
            thing: T = imported(self.kind, name)
            return thing
        self._load_entry_points()
        if family in self._entries:
            return self._entries[family]
        if name in self._broken:
            raise UnknownNameError(self._broken[name])
        raise unknown_name(self.kind, name, self._entries)

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(list(self._entries) if self.ordered else sorted(self._entries))

    def items(self) -> Iterator[tuple[str, T]]:
        """Names and their registered entries."""
        return ((name, self._entries[name]) for name in self)

    def __contains__(self, name: str) -> bool:
        self._load_entry_points()
        return self._family(name) in self._entries

    @staticmethod
    def _family(name: str) -> str:
        """The name it would be registered under: its family's, or its own."""
        first, colon, _ = name.partition(":")
        return first + colon

    def is_broken(self, name: str) -> bool:
        """Whether another package registers it but cannot be loaded: a lookup gives the reason."""
        self._load_entry_points()
        return name in self._broken

    def _load_entry_points(self) -> None:
        if not self._entry_points_loaded:
            self._entry_points_loaded = True
            for point in entry_points(group=self.group):
                try:
                    self.register(point.name)(point.load())
                except Exception as error:  # a broken package must not make others unavailable
                    package = f" of the package {point.dist.name}" if point.dist else ""
                    self._broken[point.name] = (
                        f"{self.kind} {point.name!r}{package} cannot be loaded: "
                        f"{type(error).__name__}: {error}"
                    )
                    warnings.warn(self._broken[point.name], stacklevel=3)


def imported(kind: str, path: str) -> Any:
    """Import the object at ``package.module:Name``. Raises ``UnknownNameError``."""
    module_name, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # importing a user's module may raise anything
        raise UnknownNameError(
            f"cannot import {kind} {path!r}: {type(error).__name__}: {error}; "
            "write it as package.module:Name with the package on the Python path"
        ) from error


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error to raise for a name that is not among the known ones; suggests the nearest."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    remedy = (
        f"did you mean {' or '.join(repr(n) for n in near)}?"
        if near
        else f"known: {', '.join(known)}"
    )
    return UnknownNameError(f"unknown {kind} {name!r}; {remedy}")
