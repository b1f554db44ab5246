"""The ``calsweep`` command.

Exit codes: 0 fine, 1 trials or post-hoc maps failed or the store cannot be used, 2 bad input
(or a sweep that another process is running), 130 and 143 interrupted. Other packages add
subcommands through the entry-point group ``calsweep.commands``: a callable that is given the
subparsers.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console

from sweeps import listings
from sweeps.masking import masked

if TYPE_CHECKING:
    from sweeps.runner import Outcome
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
    from sweeps.spec.reading import SpecError
    from sweeps.store import LockedError, StoreError

    logging.basicConfig(format="calsweep: %(message)s", level=logging.ERROR)
    logging.getLogger("calsweep").setLevel(logging.WARNING)
    command: Command = options.command
    try:
        signal.signal(signal.SIGTERM, _terminate)
        return command(options, console)
    except (SpecError, LockedError) as error:
        print(f"calsweep: {error}", file=sys.stderr)
        return 2
    except StoreError as error:
        print(f"calsweep: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, SystemExit) as stop:  # while it starts, Ray makes it the latter
        words = ["calsweep", *(sys.argv[1:] if arguments is None else arguments)]
        again = shlex.join(masked(word) for word in words)
        print(f"calsweep: stopped; nothing is lost, and this goes on: {again}", file=sys.stderr)
        return 143 if _terminated.is_set() or isinstance(stop, SystemExit) else 130


_terminated = threading.Event()


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM: the same way out as Ctrl-C. Ray passes on the exception, but not its kind."""
    _terminated.set()
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="calsweep", description="Which calibration method, at which settings, at what cost?"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run, resume, extend or repeat a sweep")
    run.add_argument("spec", type=Path, help="a YAML file, or the name of a ready spec")
    run.add_argument("--address", help="a running Ray cluster (default: one on this machine)")
    run.add_argument("--retry-failed", action="store_true", help="try failed trials again")
    run.add_argument(
        "--extend",
        type=_count,
        default=0,
        metavar="N",
        help="N search trials more than the spec says, for every method on every dataset",
    )
    run.set_defaults(command=_run)

    sync = commands.add_parser("sync", help="bring MLflow to what the store holds of a sweep")
    sync.add_argument("spec", type=Path, help="a YAML file, or the name of a ready spec")
    sync.set_defaults(command=_sync)

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

    for command in (run, sync):
        command.add_argument(
            "--tracking", metavar="URI", help="MLflow (default: the spec's, or sqlite in the store)"
        )
    for command in (run, check, sync, ui):
        command.add_argument(
            "--store", default="runs", help="a directory or a URI such as s3://… (default: runs)"
        )

    schema = commands.add_parser("schema", help="print the JSON Schema of specs, for editors")
    schema.set_defaults(command=_schema)

    tables: dict[str, Command] = {
        "methods": listings.methods,
        "datasets": listings.datasets,
        "models": listings.models,
        "calibrators": listings.calibrators,
        "metrics": listings.metrics,
    }
    for name, listing in tables.items():
        commands.add_parser(name, help=f"list the {name} there are").set_defaults(command=listing)
    for point in entry_points(group="calsweep.commands"):
        point.load()(commands)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a number of trials, e.g. 10")
    return int(text)


def _spec_path(path: Path) -> Path:
    ready = SPECS / f"{path}.yaml"
    return ready if not path.exists() and path.suffix == "" and ready.exists() else path


def _loaded(options: argparse.Namespace) -> LoadedSpec:
    """The spec of a command that publishes; a wrong --tracking is bad input too."""
    from sweeps.spec import SpecError, load_spec
    from sweeps.spec.meaning import tracking_problem

    loaded = load_spec(_spec_path(options.spec))
    problem = None if options.tracking is None else tracking_problem(options.tracking)
    if problem is not None:
        raise SpecError(f"--tracking: {problem}")
    return loaded


def _run(options: argparse.Namespace, console: Console) -> int:
    from sweeps.store import Store

    loaded = _loaded(options)
    store = Store(options.store)
    from sweeps.runner import run_sweep  # seconds to import: a mistake is told sooner

    _say(console, _introduction(loaded.spec), *loaded.notes)
    if options.extend and (loaded.spec.search.sampler == "grid" or not loaded.spec.search.limit):
        _say(console, "--extend adds nothing here: a grid, or time alone, bounds the search")
    outcome = run_sweep(
        loaded,
        store,
        console=console,
        tracking_uri=options.tracking,
        address=options.address,
        retry_failed=options.retry_failed,
        extend=options.extend,
    )
    _print_outcome(outcome, options, console)
    return 1 if outcome.plan.failed or outcome.failed_maps else 0


def _print_outcome(outcome: Outcome, options: argparse.Namespace, console: Console) -> None:
    from sweeps.report.paper_table import print_paper_table
    from sweeps.report.terminal import print_leaderboard

    plan = outcome.plan
    if outcome.table is not None:
        print_paper_table(outcome.table, plan, console)
    elif not outcome.leaderboard.empty:
        print_leaderboard(outcome.leaderboard, plan, console)
    where = _given(options)
    pruned = f", {plan.pruned} stopped early" if plan.pruned else ""
    lines = [
        f"trials    {plan.done} of {plan.total} done, {plan.trained} trained now{pruned}, "
        f"{plan.failed} failed",
        f"report    {plan.store.location(plan.spec.name, 'report.html')}",
        f"compare   calsweep ui{'' if options.store == 'runs' else f' --store {options.store}'}",
        "resume, extend or repeat: the same command",
    ]
    for reason, count in plan.reasons.most_common(5):
        lines.append(f"{count} failed: {' '.join(reason.split())[:300]}")
    for cell in plan.cells.values():
        if cell.hopeless:
            lines.append(f"{cell.dataset} {cell.row}: every search trial failed, so it has no row")
    if plan.failed:
        lines.append(f"once mended: calsweep run {options.spec} --retry-failed{where}")
    for name, reason in outcome.failed_maps.items():
        lines.append(f"post-hoc map {name} failed and has no row: {reason}")
    if outcome.unpublished or outcome.tracking_error:
        lines.append(
            f"MLflow could not be reached at {masked(outcome.tracking_uri)} "
            f"({outcome.tracking_error}); the records are safe, and this "
            f"publishes them: calsweep sync {options.spec}{where.partition(' --address')[0]}"
        )
    _say(console, *lines)


def _given(options: argparse.Namespace) -> str:
    """The options that say where things are, to be given again."""
    given = {"--store": options.store if options.store != "runs" else None}
    given |= {"--tracking": options.tracking, "--address": options.address}
    words = [word for name, value in given.items() if value for word in (name, str(value))]
    return "".join(f" {shlex.quote(masked(word))}" for word in words)


def _sync(options: argparse.Namespace, console: Console) -> int:
    loaded = _loaded(options)
    from sweeps.runner import sync_sweep
    from sweeps.store import Store
    from sweeps.tracking import TrackingError

    try:
        published, uri = sync_sweep(loaded, Store(options.store), options.tracking)
    except TrackingError as error:
        print(f"calsweep: {error}", file=sys.stderr)
        return 1
    _say(console, f"{published} trials published to {masked(uri)}")
    return 0


def _schema(options: argparse.Namespace, console: Console) -> int:
    from sweeps.spec.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0


def _introduction(spec: Spec) -> str:
    def count(number: int, noun: str) -> str:
        return f"{number} {noun}{'' if number == 1 else 's'}"

    what = f"{count(len(spec.datasets), 'dataset')} × {count(len(spec.methods), 'method')}"
    confirmed = f"{count(spec.confirm_seeds, 'seed')} confirmed"
    if not any(spec.space(row).searched for row in spec.methods):
        return f"{spec.name} · {what} · {confirmed}"
    bounds = [f"{spec.search.limit} search trials"] if spec.search.limit is not None else []
    if spec.search.time is not None:
        bounds.append(f"{spec.search.time:g} s of training")
    search = "a grid" if spec.search.sampler == "grid" else " or ".join(bounds)
    return f"{spec.name} · {what} · {search} each + {confirmed}"


def _say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _check(options: argparse.Namespace, console: Console) -> int:
    from sweeps.checking import print_plan, print_rehearsal
    from sweeps.spec import load_spec
    from sweeps.store import Store

    loaded = load_spec(_spec_path(options.spec))
    _say(console, *loaded.notes)
    print_plan(loaded, Store(options.store), console)
    return print_rehearsal(loaded, console) if options.rehearse else 0


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


if __name__ == "__main__":
    sys.exit(main())
