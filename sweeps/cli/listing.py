"""``calsweep methods`` and its kin: what there is to choose from."""

from __future__ import annotations

from sweeps.cli import listings
from sweeps.cli.arguments import Command, Subparsers


def add(commands: Subparsers) -> None:
    """Add the commands."""
    tables: dict[str, Command] = {
        "methods": listings.methods,
        "datasets": listings.datasets,
        "models": listings.models,
        "calibrators": listings.calibrators,
        "metrics": listings.metrics,
        "samplers": listings.samplers,
    }
    for name, listing in tables.items():
        commands.add_parser(name, help=f"list the {name} there are").set_defaults(command=listing)
