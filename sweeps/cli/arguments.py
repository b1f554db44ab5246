"""What several commands have in common: their arguments, and how they speak."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

from sweeps.errors import UserError

if TYPE_CHECKING:
    from sweeps.sweep import Sweep

Command = Callable[[argparse.Namespace, Console], int]
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_spec(parser: argparse.ArgumentParser) -> None:
    """The argument SPEC: something to be run."""
    parser.add_argument("spec", type=Path, help="a YAML file, or the name of a ready spec")


def add_sweep(
    parser: argparse.ArgumentParser, name: str = "sweep", *, optional: bool = False
) -> None:
    """The argument SWEEP: something that was run; without it, if ``optional``, all of them."""
    parser.add_argument(
        name,
        metavar=name.upper(),
        nargs="?" if optional else None,
        help="the name of a sweep in the store, or its YAML file"
        + (" (default: every sweep)" if optional else ""),
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """The option --store."""
    parser.add_argument(
        "--store", default="runs", help="a directory or a URI such as s3://… (default: runs)"
    )


def add_tracking(parser: argparse.ArgumentParser) -> None:
    """The option --tracking."""
    parser.add_argument(
        "--tracking", metavar="URI", help="MLflow (default: the spec's, or sqlite in the store)"
    )


def check_place(option: str, path: Path) -> None:
    """Raise ``UserError`` if no file can be written to ``path``: before the work, not after it."""
    if path.is_dir():
        raise UserError(f"{option} {path}: is a directory; name a file")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no directory {path.parent}; make it first")


def opened(options: argparse.Namespace, name: str = "sweep") -> Sweep:
    """The sweep that a command names. Raises ``UserError`` if the store has no such sweep."""
    from sweeps.sweep import open_sweep

    return open_sweep(getattr(options, name), options.store)
