"""What there is to choose from: the tables of ``calsweep methods`` and its kin."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from calibration.text import count
from sweeps.cli.arguments import Command, Subparsers


def add(commands: Subparsers) -> None:
    """Add the commands."""
    tables: dict[str, Command] = {
        "methods": methods,
        "datasets": datasets,
        "models": models,
        "calibrators": calibrators,
        "metrics": metrics,
        "samplers": samplers,
    }
    for name, listing in tables.items():
        commands.add_parser(name, help=f"list the {name} there are").set_defaults(command=listing)


def methods(options: argparse.Namespace, console: Console) -> int:
    """List the methods."""
    from calibration.methods import METHODS
    from sweeps.engine.progress import format_value

    table = Table("method", "what it is", "hyperparameters (default; searched by default)")
    for name in METHODS:
        hyperparameters = METHODS[name].Hyperparameters
        domains = hyperparameters.domains()
        described = [
            f"{hyperparameter} = {format_value(field.default)}"
            + (f" {describe_domain(domains[hyperparameter])}" if hyperparameter in domains else "")
            for hyperparameter, field in hyperparameters.model_fields.items()
        ]
        table.add_row(name, METHODS[name].description, "\n".join(described))
    console.print(table)
    return 0


def datasets(options: argparse.Namespace, console: Console) -> int:
    """List the datasets."""
    from calibration.data import DATASETS

    return _list_settings("dataset", {name: DATASETS[name] for name in DATASETS}, console)


def models(options: argparse.Namespace, console: Console) -> int:
    """List the models."""
    from calibration.models import MODELS

    return _list_settings("model", {name: MODELS[name] for name in MODELS}, console)


def _list_settings(kind: str, entries: dict[str, type], console: Console) -> int:
    table = Table(kind, "what it is", "options (default)")
    for name, entry in entries.items():
        options = [
            f"{option} ({'required' if field.is_required() else field.default})"
            for option, field in getattr(entry, "model_fields", {}).items()
        ]
        table.add_row(name, _first_line(entry), "\n".join(options))
    console.print(table)
    return 0


def calibrators(options: argparse.Namespace, console: Console) -> int:
    """List the calibrators."""
    from calibration.calibrators import CALIBRATORS

    table = Table("calibrator", "what it is", "in 'fast'", "keeps the class")
    for name in CALIBRATORS:
        entry = CALIBRATORS[name]
        marks = ["yes" if mark else "" for mark in (entry.fast, entry.keeps_argmax)]
        table.add_row(name, entry.description, *marks)
    console.print(table)
    return 0


def metrics(options: argparse.Namespace, console: Console) -> int:
    """List the metrics."""
    from calibration.metrics import METRICS

    table = Table("metric", "what it is", "values", "better", "interval")
    for name, metric in METRICS.items():
        better = {"minimize": "lower", "maximize": "higher", "none": ""}[metric.direction]
        interval = "bootstrap" if metric.has_interval else ""
        table.add_row(name, metric.description, _bounds(metric.bounds), better, interval)
    console.print(table)
    return 0


def samplers(options: argparse.Namespace, console: Console) -> int:
    """List the samplers."""
    from sweeps.search import SAMPLERS

    table = Table("sampler", "what it is", "conditions", "several objectives", "at most")
    for name, kind in SAMPLERS.items():
        marks = ["yes" if mark else "" for mark in (kind.conditions, kind.several_objectives)]
        most = "" if kind.most_trials is None else f"{count(kind.most_trials, 'trial')}"
        table.add_row(name, kind.description, *marks, most)
    console.print(table)
    return 0


def _bounds(bounds: tuple[float, float]) -> str:
    """The values that a metric can have: ``0 … 1``, ``0 … ∞``."""
    return " … ".join(f"{bound:g}".replace("inf", "∞").replace("-", "−") for bound in bounds)


def _first_line(thing: type) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


def describe_domain(domain: object) -> str:
    """A search domain in a few characters."""
    from calibration.hyperparameters import Choice, Integer, LogUniform, Uniform

    match domain:
        case Choice(values):
            return "{" + ", ".join(map(str, values)) + "}"
        case Uniform(low, high) | Integer(low, high, False):
            return f"[{low:g}, {high:g}]"
        case LogUniform(low, high) | Integer(low, high, True):
            return f"[{low:g}, {high:g}] log"
    return str(domain)
