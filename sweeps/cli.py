"""The ``calsweep`` command.

Exit codes: 0 fine, 1 trials or post-hoc maps failed, 2 bad input. Other packages add
subcommands through the entry-point group ``calsweep.commands``: a callable that is given the
subparsers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from sweeps.schema import Spec
    from sweeps.spec import LoadedSpec

Command = Callable[[argparse.Namespace, Console], int]

SPECS = Path(__file__).parent / "specs"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every complaint about input is one message on standard error."""
    if str(Path.cwd()) not in sys.path:  # so that a user's own module:Name is found
        sys.path.insert(0, str(Path.cwd()))
    parser = _parser()
    options = parser.parse_args(arguments)
    console = Console()
    from sweeps.spec import SpecError
    from sweeps.store import StoreError

    command: Command = options.command
    try:
        return command(options, console)
    except SpecError as error:
        print(f"calsweep: {error}", file=sys.stderr)
        return 2
    except StoreError as error:
        print(f"calsweep: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("calsweep: interrupted; the same command continues", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="calsweep", description="Which calibration method, at which settings, at what cost?"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run, resume, extend or repeat a sweep")
    run.add_argument("spec", type=Path, help="a YAML file, or the name of a ready spec")
    run.add_argument("--address", help="a running Ray cluster (default: one on this machine)")
    run.add_argument("--tracking", metavar="URI", help="MLflow (default: sqlite in the store)")
    run.set_defaults(command=_run)

    check = commands.add_parser("check", help="check a spec and print its plan; nothing is run")
    check.add_argument("spec", type=Path, help="a YAML file, or the name of a ready spec")
    check.add_argument(
        "--try",
        action="store_true",
        dest="rehearse",
        help="train every row for a few batches, to see that it would run",
    )
    check.set_defaults(command=_check)

    ui = commands.add_parser("ui", help="open the MLflow UI on a store")
    ui.add_argument("--port", type=int, default=5000)
    ui.set_defaults(command=_ui)

    for command in (run, check, ui):
        command.add_argument("--store", type=Path, default=Path("runs"), help="default: runs")

    listings: dict[str, Command] = {
        "methods": _methods,
        "datasets": _datasets,
        "models": _models,
        "calibrators": _calibrators,
        "metrics": _metrics,
    }
    for name, listing in listings.items():
        commands.add_parser(name, help=f"list the {name} there are").set_defaults(command=listing)
    for point in entry_points(group="calsweep.commands"):
        point.load()(commands)
    return parser


def _spec_path(path: Path) -> Path:
    ready = SPECS / f"{path}.yaml"
    return ready if not path.exists() and path.suffix == "" and ready.exists() else path


def _run(options: argparse.Namespace, console: Console) -> int:
    from sweeps.report.paper_table import print_paper_table
    from sweeps.report.terminal import print_leaderboard
    from sweeps.runner import run_sweep
    from sweeps.spec import load_spec
    from sweeps.store import Store

    loaded = load_spec(_spec_path(options.spec))
    _say(console, _introduction(loaded.spec), *loaded.notes)
    outcome = run_sweep(
        loaded,
        Store(options.store),
        console=console,
        tracking_uri=options.tracking,
        address=options.address,
    )
    if outcome.table is not None:
        print_paper_table(outcome.table, outcome.plan, console)
    elif not outcome.leaderboard.empty:
        print_leaderboard(outcome.leaderboard, outcome.plan, console)
    plan, store = outcome.plan, options.store
    lines = [
        f"trials    {plan.done} of {plan.total} done, {outcome.trained} trained now, "
        f"{plan.failed} failed",
        f"report    {outcome.directory / 'report.html'}",
        f"compare   calsweep ui{'' if store == Path('runs') else f' --store {store}'}",
        "resume, extend or repeat: the same command",
    ]
    for name, reason in outcome.failed_maps.items():
        lines.append(f"post-hoc map {name} failed and has no row: {reason}")
    if outcome.unpublished or outcome.tracking_error:
        lines.append(
            f"MLflow could not be reached at {outcome.tracking_uri} ({outcome.tracking_error}); "
            "the records are safe, and the same command publishes them later"
        )
    _say(console, *lines)
    return 1 if plan.failed or outcome.failed_maps else 0


def _introduction(spec: Spec) -> str:
    def count(number: int, noun: str) -> str:
        return f"{number} {noun}{'' if number == 1 else 's'}"

    what = f"{count(len(spec.datasets), 'dataset')} × {count(len(spec.methods), 'method')}"
    confirmed = f"{count(spec.confirm_seeds, 'seed')} confirmed"
    if not any(spec.space(row).searched for row in spec.methods):
        return f"{spec.name} · {what} · {confirmed}"
    search = "a grid" if spec.search.sampler == "grid" else f"{spec.search.trials} search trials"
    return f"{spec.name} · {what} · {search} each + {confirmed}"


def _say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _check(options: argparse.Namespace, console: Console) -> int:
    from sweeps.plan import Plan
    from sweeps.spec import load_spec
    from sweeps.store import Store

    loaded = load_spec(_spec_path(options.spec))
    _say(console, *loaded.notes)
    plan = Plan(loaded, Store(options.store), persist=False)
    plan.replay()
    table = Table(title=f"{plan.spec.name}: {plan.total} trials", title_justify="left")
    for heading in ("dataset", "method", "search", "confirm", "done", "searched"):
        table.add_column(heading)
    for cell in plan.cells.values():
        table.add_row(
            Text(cell.dataset),
            Text(cell.row),
            str(cell.study.budget or ""),
            str(plan.spec.confirm_seeds),
            str(cell.done),
            ", ".join(f"{n} {_domain(d)}" for n, d in cell.study.space.searched.items()),
        )
    console.print(table)
    return _rehearse(loaded, console) if options.rehearse else 0


def _rehearse(loaded: LoadedSpec, console: Console) -> int:
    from sweeps.rehearsal import rehearse

    failed = 0
    for tried in rehearse(loaded):
        outcome = tried.failure or f"loss {tried.loss:.3f} after {tried.seconds:.1f} s"
        _say(console, f"{tried.dataset}  {tried.row}: {outcome}")
        failed += bool(tried.failure)
    return 1 if failed else 0


def _domain(domain: object) -> str:
    from calibration.hyperparameters import Choice, Integer, LogUniform, Uniform

    match domain:
        case Choice(values):
            return "{" + ", ".join(map(str, values)) + "}"
        case Uniform(low, high) | Integer(low, high, False):
            return f"[{low:g}, {high:g}]"
        case LogUniform(low, high) | Integer(low, high, True):
            return f"[{low:g}, {high:g}] log"
    return str(domain)


def _ui(options: argparse.Namespace, console: Console) -> int:
    import os

    from sweeps.spec import SpecError

    database = options.store / "mlflow.db"
    if not database.exists():
        raise SpecError(f"{database}: there is no such file; run a sweep first, or name --store")
    console.print(f"http://127.0.0.1:{options.port}  (stop with Ctrl-C)", highlight=False)
    sys.stdout.flush()
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    arguments = ["-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{database.resolve()}"]
    arguments += ["--host", "127.0.0.1", "--port", str(options.port)]
    os.execv(sys.executable, [sys.executable, *arguments])


def _methods(options: argparse.Namespace, console: Console) -> int:
    from calibration.methods import METHODS
    from sweeps.progress import format_value

    table = Table("method", "what it is", "hyperparameters (default; searched by default)")
    for name in METHODS:
        knobs = METHODS[name].Hyperparameters
        domains = knobs.domains()
        described = [
            f"{knob} = {format_value(field.default)}"
            + (f" {_domain(domains[knob])}" if knob in domains else "")
            for knob, field in knobs.model_fields.items()
        ]
        table.add_row(name, METHODS[name].description, "\n".join(described))
    console.print(table)
    return 0


def _datasets(options: argparse.Namespace, console: Console) -> int:
    from calibration.data import DATASETS

    return _list_settings("dataset", {name: DATASETS[name] for name in DATASETS}, console)


def _models(options: argparse.Namespace, console: Console) -> int:
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


def _calibrators(options: argparse.Namespace, console: Console) -> int:
    from calibration.post_hoc import CALIBRATORS

    table = Table("calibrator", "what it is", "in 'fast'", "keeps the class")
    for name in CALIBRATORS:
        entry = CALIBRATORS[name]
        marks = ["yes" if mark else "" for mark in (entry.fast, entry.keeps_argmax)]
        table.add_row(name, entry.description, *marks)
    console.print(table)
    return 0


def _metrics(options: argparse.Namespace, console: Console) -> int:
    from calibration.metrics import METRICS

    table = Table("metric", "what it is")
    for name, metric in METRICS.items():
        table.add_row(name, metric.description)
    console.print(table)
    return 0


def _first_line(thing: type) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
