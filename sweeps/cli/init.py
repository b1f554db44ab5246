"""``calsweep init``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from rich.console import Console

from calibration.text import count
from sweeps.cli.arguments import Subparsers
from sweeps.errors import UserError
from sweeps.host.console import say


def add(commands: Subparsers) -> None:
    """Add the command."""
    init = commands.add_parser("init", help="write a first spec for your own data")
    init.add_argument("--data", type=Path, required=True, help="a CSV, Parquet or NPZ file")
    init.add_argument("--target", metavar="COLUMN", help="the column with the classes (not NPZ)")
    init.add_argument(
        "--methods",
        choices=("fast", "all"),
        default="fast",
        help="those that train as fast as cross-entropy (default), or all",
    )
    init.add_argument("--out", type=Path, help="the file to write (default: named after the data)")
    init.set_defaults(command=_init)


def _init(options: argparse.Namespace, console: Console) -> int:
    from sweeps.spec import read_spec
    from sweeps.spec.data_warnings import warnings_in
    from sweeps.spec.template import new_spec, one_line

    out: Path | None = options.out
    directory = Path.cwd() if out is None else out.parent
    name, text = new_spec(options.data, options.target, options.methods, directory)
    path = Path(f"{name}.yaml") if out is None else out
    if path.exists():
        raise UserError(f"{path} exists; name another file with --out, or remove it")
    if not directory.is_dir():
        raise UserError(f"{path}: no directory {directory}; create it first")
    loaded = read_spec(text, path, directory)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
    datasets = ", ".join(map(one_line, loaded.datasets))
    spec = shlex.quote(str(path))
    say(
        console,
        f"{path}: {count(len(loaded.spec.methods), 'method')} on {datasets}",
        f"check it  calsweep check {spec}",
        f"run it    calsweep run {spec}",
        *warnings_in(text),
    )
    return 0
