"""The tables of ``calsweep methods``, ``datasets`` and the other listings."""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from calibration.text import count
from sweeps.cli.arguments import Command, Completer, Subparsers, completed_by
from sweeps.errors import UserError
from sweeps.host.console import say
from sweeps.specs import SPECS, ready_names, ready_specs

if TYPE_CHECKING:
    from calibration.registry import Registry


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
        parser = commands.add_parser(name, help=f"list all {name}, or describe one")
        _add_name(parser, "the one to describe (default: list all)", partial(names_of, name))
        parser.set_defaults(command=partial(_one_or_all, name, listing))
    specs = commands.add_parser("specs", help="list the bundled specs, or print one")
    _add_name(specs, "the one to print (default: list all)", lambda **_: ready_names())
    specs.set_defaults(command=_specs)


def _add_name(parser: argparse.ArgumentParser, about: str, completer: Completer) -> None:
    completed_by(parser.add_argument("name", nargs="?", metavar="NAME", help=about), completer)


def _registry(kind: str) -> Registry[Any]:
    """One registry, without importing the others: some take seconds."""
    match kind:
        case "datasets":
            from calibration.data import DATASETS

            return DATASETS
        case "models":
            from calibration.models import MODELS

            return MODELS
        case "calibrators":
            from calibration.calibrators import CALIBRATORS

            return CALIBRATORS
        case "metrics":
            from calibration.metrics import METRICS

            return METRICS
    from sweeps.search import SAMPLERS

    return SAMPLERS


def names_of(kind: str, **_: object) -> list[str]:
    """The names of all entries of a kind."""
    if kind == "methods":
        from calibration.learners import learner_names

        return learner_names()
    return list(_registry(kind))


def entry_of(kind: str, name: str) -> tuple[str, Any]:
    """The kind of an entry, in a word, and the entry. Raises ``UnknownNameError``."""
    if kind == "methods":
        from calibration.learners import learner, trains_network

        return "method" if trains_network(name) else "learner", learner(name)
    registry = _registry(kind)
    return registry.kind, registry[name]


def _one_or_all(kind: str, listing: Command, options: argparse.Namespace, console: Console) -> int:
    if options.name is None:
        return listing(options, console)
    from calibration.registry import UnknownNameError
    from sweeps.cli.entry_view import print_entry

    try:
        word, entry = entry_of(kind, options.name)
        print_entry(word, options.name, entry, console)
    except UnknownNameError as error:
        raise UserError(str(error)) from None
    return 0


def _specs(options: argparse.Namespace, console: Console) -> int:
    names = ready_names()
    if options.name is not None:
        if options.name not in names:
            near = difflib.get_close_matches(options.name, names, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
            raise UserError(f"no bundled spec {options.name!r}; {remedy}")
        print((SPECS / f"{options.name}.yaml").read_text(encoding="utf-8"), end="")
        return 0
    table = Table("spec", "what it is", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, path in zip(names, ready_specs(), strict=True):
        table.add_row(name, _opening(path.read_text(encoding="utf-8")))
    console.print(table)
    say(console, "", "calsweep specs NAME prints one, calsweep run NAME runs it")
    return 0


def _opening(text: str) -> str:
    """The first sentence of the comment at the top of a spec."""
    lines = itertools.takewhile(lambda line: line.startswith("# "), text.splitlines())
    comment = " ".join(line.removeprefix("# ").strip() for line in lines)
    return re.split(r"(?<=\.) (?=[A-Z])", comment)[0].rstrip(".")


def methods(options: argparse.Namespace, console: Console) -> int:
    """List the methods and the estimators."""
    from calibration.learners import learner, learner_names
    from calibration.methods import BackboneHyperparameters, InputHyperparameters
    from sweeps.engine.progress import format_value

    of_tables, of_backbones = (
        InputHyperparameters.model_fields,
        BackboneHyperparameters.model_fields,
    )
    of_all = of_tables.keys() | of_backbones.keys()
    table = Table("method", "what it is", "hyperparameters (default; searched by default)")
    for name in learner_names():
        hyperparameters = learner(name).Hyperparameters
        domains, conditions = hyperparameters.domains(), hyperparameters.conditions()
        described = [
            f"{hyperparameter} = {format_value(field.default)}"
            + (f" {describe_domain(domains[hyperparameter])}" if hyperparameter in domains else "")
            + "".join(
                f"; {describe_domain(domain)} when {when.other}: {when.value}"
                for when, domain in hyperparameters.replacements(hyperparameter)
            )
            + (
                f" when {only.other}: {only.value}"
                if (only := conditions.get(hyperparameter))
                else ""
            )
            for hyperparameter, field in hyperparameters.model_fields.items()
            if hyperparameter not in of_all
        ]
        table.add_row(name, learner(name).description, "\n".join(described))
    console.print(table)
    say(
        console,
        "",
        f"on tables, each also has {', '.join(of_tables)}; with a pretrained network and "
        f"frozen: false, {', '.join(of_backbones)}; see calsweep methods NAME",
    )
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
    from sweeps.spec.settings import as_text

    table = Table(kind, "what it is", "options (default)")
    for name, entry in entries.items():
        options = [
            f"{option} ({'required' if field.is_required() else as_text(field.default)})"
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

    table = Table("metric", "what it is", "values", "better", "equivalent within", "interval")
    for name, metric in METRICS.items():
        better = {"minimize": "lower", "maximize": "higher", "none": ""}[metric.direction]
        interval = "bootstrap" if metric.has_interval else ""
        region = "" if metric.region is None else f"±{metric.region:g}"
        table.add_row(name, metric.description, _bounds(metric.bounds), better, region, interval)
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
    return (thing.__doc__ or "").strip().splitlines()[0].replace("``", "")


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
