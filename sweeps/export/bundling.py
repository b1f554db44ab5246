"""The code bundled with an exported model, and the packages that it requires.

The package ``calibration`` is always bundled, and so are the user's own modules behind an
import path or an entry point, with all local modules that they import. Installed packages
become pinned requirements.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import NamedTuple

import calibration

REQUIRED = ("mlflow", "numpy", "pandas", "pydantic", "scipy", "torch")
"""The packages needed for prediction, but not those for sweeps."""
_OURS = "calibration"


class Bundle(NamedTuple):
    """Files and directories to copy, and pinned requirements."""

    code: list[Path]
    requirements: list[str]


def bundle(modules: Iterable[str]) -> Bundle:
    """Everything needed to import ``modules``, given by dotted names, elsewhere."""
    code = {_OURS: Path(next(iter(calibration.__path__)))}
    packages = {name: name for name in REQUIRED}
    waiting = [module.partition(".")[0] for module in modules]
    seen: set[str] = set()
    while waiting:
        top = waiting.pop()
        if top in seen or top == _OURS or top in sys.stdlib_module_names:
            continue
        seen.add(top)
        place = _place(top)
        if place is None:
            continue
        if _is_installed(place):
            for distribution in packages_distributions().get(top, []):
                packages[distribution] = distribution
            continue
        code[top] = place
        waiting += _imports(place)
    pins = [f"{name}=={_release(name)}" for name in sorted(packages, key=str.lower)]
    return Bundle(list(code.values()), pins)


def _place(top: str) -> Path | None:
    """The file of a module, or the directory of a package; None if there is neither."""
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a module created at run time
        return None
    if found is None:
        return None
    if found.submodule_search_locations:
        return Path(next(iter(found.submodule_search_locations)))
    return Path(found.origin) if found.has_location and found.origin else None


def _is_installed(place: Path) -> bool:
    # Not only this environment's: it may use packages of the system or of the user.
    return not {"site-packages", "dist-packages"}.isdisjoint(place.parts)


def _imports(place: Path) -> Iterator[str]:
    """The top-level names that a file, or the files of a package, import."""
    for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # compiled, or not for this version of Python
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def _release(name: str) -> str:
    # A build such as 2.13.0+cpu is not available from the usual package index.
    return version(name).partition("+")[0]
