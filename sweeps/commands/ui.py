"""``calsweep ui``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from sweeps.commands.arguments import Subparsers, add_store


def add(commands: Subparsers) -> None:
    """Add the command."""
    ui = commands.add_parser("ui", help="open the MLflow UI on a store")
    ui.add_argument("--port", type=int, default=5000)
    add_store(ui)
    ui.set_defaults(command=_ui)


def _ui(options: argparse.Namespace, console: Console) -> int:
    from sweeps.spec import SpecError
    from sweeps.store import Store
    from sweeps.tracking import default_uri

    database = Path(default_uri(Store(options.store)).removeprefix("sqlite:///"))
    if not database.exists():
        raise SpecError(f"{database}: there is no such file; run a sweep first, or name --store")
    console.print(f"http://127.0.0.1:{options.port}  (stop with Ctrl-C)", highlight=False)
    sys.stdout.flush()
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    arguments = ["-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{database.resolve()}"]
    arguments += ["--host", "127.0.0.1", "--port", str(options.port)]
    os.execv(sys.executable, [sys.executable, *arguments])
