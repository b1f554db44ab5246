"""The user's files that a sweep needs on another machine, and copying them.

A spec names methods, models, datasets and calibrators by import path (``my_losses:Mine``). Their
modules, and those of the user's directory that these import, are shipped (``stage``). Results,
environments and histories stay where they are; so does data, except for files that a submitted job
takes along (``copy_together``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from sweeps.errors import UserError
from sweeps.spec import LoadedSpec

PACKAGE_LIMIT = 100 * 2**20
"""The most bytes that Ray accepts as a working directory."""
_IMPORT_PATH = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")
OURS = ("calibration", "sweeps", "cluster")
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info", "runs", "mlruns", "*.pyc")


def stage(loaded: LoadedSpec, directory: Path, destination: Path) -> bool:
    """Copy the user's modules from ``directory``; False if the spec names none there."""
    names = local_modules(loaded.written, directory)
    copy(names, directory, destination)
    return bool(names)


def local_modules(written: Any, directory: Path) -> list[str]:
    """The files and packages in ``directory`` that a spec's import paths lead to."""
    finder = ModuleFinder(path=[str(directory)])
    for name in import_paths(written):
        if _top_level(directory, name) is not None:
            # Its use will show what is wrong with it; a package without __init__ is not a module
            # to the finder, but is shipped whole.
            with contextlib.suppress(ImportError, SyntaxError, AttributeError):
                finder.import_hook(name)
    found = {_top_level(directory, name) for name in [*finder.modules, *import_paths(written)]}
    return sorted(name for name in found if name is not None)


def import_paths(written: Any) -> Iterator[str]:
    """The modules of everything in a spec that looks like ``module:Name``."""
    if isinstance(written, str):
        match = _IMPORT_PATH.fullmatch(written)
        if match:
            yield match.group(1)
    elif isinstance(written, dict):
        for key, value in written.items():
            yield from import_paths(key)
            yield from import_paths(value)
    elif isinstance(written, list):
        for value in written:
            yield from import_paths(value)


def copy(names: list[str], directory: Path, destination: Path) -> None:
    """Copy files and directories by their names in ``directory``.

    Raises ``UserError`` if one is missing, or if together they are more than Ray accepts.
    """
    for given in names:
        name = os.path.relpath(directory / given, directory)
        if name.startswith(os.pardir):
            raise UserError(f"{given}: is outside {directory}; only files below it can be sent")
        source, target = directory / name, destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=LEFT_OUT, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy2(source, target)
        else:
            raise UserError(f"{source}: no such file or directory, but the cluster needs it")
    _check_size(destination)


def copy_together(first: Path, others: list[Path], destination: Path) -> Path:
    """Copy files with their relative positions; returns the path of the first in the copy."""
    # Not resolved: a link keeps its name, and is sent as the file that it leads to.
    places = [Path(os.path.abspath(path)) for path in (first, *others)]  # noqa: PTH100
    base = Path(os.path.commonpath([path.parent for path in places]))
    names = [str(path.relative_to(base)) for path in places]
    copy(names, base, destination)
    return Path(names[0])


def _check_size(destination: Path) -> None:
    sizes = {path: path.stat().st_size for path in destination.rglob("*") if path.is_file()}
    if sum(sizes.values()) <= PACKAGE_LIMIT:
        return
    largest = sorted(sizes, key=lambda path: sizes[path])[-3:]
    shown = ", ".join(
        f"{path.relative_to(destination)} ({sizes[path] / 2**20:.0f} MB)"
        for path in reversed(largest)
    )
    raise UserError(
        f"the files for the cluster have {sum(sizes.values()) / 2**20:.0f} MB, but Ray accepts at "
        f"most {PACKAGE_LIMIT / 2**20:.0f} MB; the largest: {shown}. Put large files where "
        "every node can read them and name them by their absolute path or URI"
    )


def _top_level(directory: Path, module: str) -> str | None:
    top = module.partition(".")[0]
    if top in OURS:  # the cluster has its own, beside which no part of ours may be
        return None
    if any((directory / top).glob("*.py")):
        return top
    return f"{top}.py" if (directory / f"{top}.py").exists() else None
