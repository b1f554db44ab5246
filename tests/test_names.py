"""One name, one meaning: no public class or constant is defined in two modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("calibration", "cluster", "sweeps")


def test_a_public_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in set(public_names(ast.parse(path.read_text()))):
                places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def public_names(module: ast.Module) -> Iterator[str]:
    """The classes, constants and type aliases that a module defines; imports are not among them."""
    for statement in module.body:
        if isinstance(statement, ast.ClassDef):
            names = [statement.name]
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        else:
            continue
        # Constants and aliases begin with a capital; a single one is a type variable.
        yield from (name for name in names if name[0].isupper() and len(name) > 1)


def test_imports_and_private_names_are_not_definitions() -> None:
    text = "from a import Bb\nclass Cc: Xx = 1\nDd, (Ee, _F) = 1, (2, 3)\nGg: int = 4\nT = h = 5\n"
    assert list(public_names(ast.parse(text))) == ["Cc", "Dd", "Ee", "Gg"]
