"""``calsweep check`` and ``calsweep schema``."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from sweeps.cli.arguments import Subparsers, add_spec, add_store
from sweeps.host.console import say


def add(commands: Subparsers) -> None:
    """Add the commands."""
    check = commands.add_parser("check", help="check a spec and print its plan; nothing is run")
    add_spec(check)
    check.add_argument(
        "--try",
        action="store_true",
        dest="try_rows",
        help="train every row for a few batches, to see that it would run",
    )
    add_store(check)
    check.set_defaults(command=_check)
    schema = commands.add_parser("schema", help="print the JSON Schema of specs, for editors")
    schema.set_defaults(command=_schema)


def _check(options: argparse.Namespace, console: Console) -> int:
    from sweeps.cli.plan_view import print_dry_run, print_plan
    from sweeps.spec import load_spec
    from sweeps.spec.ready import spec_path
    from sweeps.store import Store
    from sweeps.tracking.mlflow.backend import default_uri
    from sweeps.tracking.mlflow.database_file import check_database_file

    loaded, store = load_spec(spec_path(options.spec)), Store(options.store)
    check_database_file(loaded.spec.tracking.uri or default_uri(store))
    say(console, *loaded.notes)
    print_plan(loaded, store, console)
    return print_dry_run(loaded, console) if options.try_rows else 0


def _schema(options: argparse.Namespace, console: Console) -> int:
    from sweeps.spec.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
