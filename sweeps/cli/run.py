"""``calsweep run`` and ``calsweep sync``."""

from __future__ import annotations

import argparse
import shlex
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from calibration.text import count
from sweeps.cli.arguments import (
    Subparsers,
    add_spec,
    add_status_port,
    add_store,
    add_tracking,
    status_server,
)
from sweeps.cli.early_access import check_server
from sweeps.errors import UserError
from sweeps.host.console import say, say_paragraph
from sweeps.host.secrets import masked
from sweeps.host.stages import THIS_PROCESS, WORKERS, stage

if TYPE_CHECKING:
    from sweeps.runner import Outcome
    from sweeps.spec import LoadedSpec
    from sweeps.spec.schema import Spec


def add(commands: Subparsers) -> None:
    """Add the commands."""
    run = commands.add_parser("run", help="run, resume, extend or repeat a sweep")
    add_spec(run)
    run.add_argument(
        "--address",
        metavar="auto|HOST:PORT",
        help="a running Ray cluster (default: its own Ray on this machine)",
    )
    run.add_argument(
        "--cpus",
        type=_cpus,
        metavar="N",
        help="CPUs of this machine for its own Ray (default: those that the affinity mask, the "
        "control group and Slurm all allow this process)",
    )
    run.add_argument(
        "--profile",
        action="store_true",
        help="print the seconds of the driver and of its workers by stage",
    )
    add_how(run)
    add_status_port(run)
    run.set_defaults(command=_run)
    sync = commands.add_parser("sync", help="publish a sweep's records from the store to MLflow")
    add_spec(sync)
    sync.set_defaults(command=_sync)
    for command in (run, sync):
        add_tracking(command)
        add_store(command)


def add_how(parser: argparse.ArgumentParser) -> None:
    """Add the options for how a sweep is run, here or as a job of a cluster."""
    parser.add_argument(
        "--concurrent",
        type=_count,
        metavar="N",
        help="on a cluster: request resources for N trials at once, so that it scales up to that",
    )
    parser.add_argument("--retry-failed", action="store_true", help="retry failed trials")
    parser.add_argument(
        "--extend",
        type=_count,
        default=0,
        metavar="N",
        help="N more search trials than in the spec, for every row on every dataset",
    )
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=0,
        metavar="N",
        help="N more confirm seeds than in the spec; verdicts keep their 5 %% for three looks",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a number of trials, e.g. 10")
    return int(text)


def _cpus(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a number of CPUs, e.g. 4")
    return int(text)


def _seeds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 900:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a number of seeds, e.g. 5")
    return int(text)


def _loaded(options: argparse.Namespace) -> LoadedSpec:
    """The spec of a command that publishes; a wrong --tracking is bad input too."""
    from sweeps.spec import load_spec
    from sweeps.spec.ready import spec_path
    from sweeps.spec.tracking_uri import check_tracking_option

    path = spec_path(options.spec)
    check_tracking_option(options.tracking)
    check_server(options.tracking, path)
    return load_spec(path)


def _run(options: argparse.Namespace, console: Console) -> int:
    from sweeps.store import Store

    if options.cpus is not None and options.address is not None:
        raise UserError(
            f"--cpus {options.cpus}: the Ray cluster at --address {options.address} has its own "
            "CPUs; leave one of the two out"
        )
    THIS_PROCESS.add({"imports": time.process_time()})  # of the process so far
    with stage("spec and data"):
        loaded = _loaded(options)
    store = Store(options.store)
    with stage("imports"):
        from sweeps.ray_backend.connection import Cluster
        from sweeps.runner import run_sweep  # seconds to import: mistakes are reported first
        from sweeps.sweep import extension

    added = extension(store, loaded.spec.name).more(options.extend, options.seeds)
    say(console, _introduction(added.applied(loaded).spec, added.trials), *loaded.notes)
    if options.extend and (loaded.spec.search.is_grid or not loaded.spec.search.limit):
        say(console, "--extend adds nothing here: the search is limited by a grid or only by time")
    with status_server(options, console) as status:
        outcome = run_sweep(
            loaded,
            store,
            console=console,
            tracking_uri=options.tracking,
            cluster=Cluster(options.address, options.concurrent, options.cpus),
            retry_failed=options.retry_failed,
            extend=options.extend,
            seeds=options.seeds,
            status=status,
        )
    _print_outcome(outcome, options, console)
    if options.profile:
        _print_profile(console)
    return 1 if outcome.plan.failed or outcome.failed_calibrators or outcome.report_failures else 0


def _print_outcome(outcome: Outcome, options: argparse.Namespace, console: Console) -> None:
    from sweeps.report.headline import recommended
    from sweeps.report.paper_table import print_paper_table
    from sweeps.report.terminal import print_leaderboard

    plan = outcome.plan
    if not outcome.analysis.leaderboard.empty:
        for sentence in recommended(outcome.analysis):
            say_paragraph(console, sentence)
    if outcome.table is not None:
        print_paper_table(outcome.table, outcome.records, console)
    elif not outcome.analysis.leaderboard.empty:
        print_leaderboard(outcome.analysis, outcome.records, console)
    where = _given(options)
    pruned = f", {plan.pruned} stopped early" if plan.pruned else ""
    name, spec = shlex.quote(plan.spec.name), shlex.quote(str(options.spec))
    dataset = " --dataset NAME" if len(plan.loaded.datasets) > 1 else ""
    lines = [
        f"trials    {plan.done} of {plan.total} done, {plan.trained} trained now{pruned}, "
        f"{plan.failed} failed",
        f"report    {plan.store.location(plan.spec.name, 'report.html')}",
        f"compare   calsweep ui {name}{_store(options)}",
        f"take home calsweep export {name} --out DIR{dataset}{_store(options)}",
        "resume, extend or repeat: the same command",
    ]
    for reason, times in plan.reasons.most_common(5):
        lines.append(f"{times} failed: {' '.join(reason.split())[:300]}")
    for cell in plan.cells.values():
        if cell.hopeless:
            lines.append(f"{cell.dataset} {cell.row}: every search trial failed, so it has no row")
    if plan.failed:
        lines.append(f"after it is fixed: calsweep run {spec} --retry-failed{where}")
    for name, reason in outcome.failed_calibrators.items():
        lines.append(f"calibrator {name} failed and has no row: {reason}")
    if outcome.unpublished or outcome.tracking_error:
        lines.append(
            f"MLflow could not be reached at {masked(outcome.tracking_uri)} "
            f"({outcome.tracking_error}); the records are safe; to publish "
            f"them: calsweep sync {spec}{where.partition(' --address')[0]}"
        )
    say(console, *lines)


def _print_profile(console: Console) -> None:
    """Seconds by stage: of this process, and of all workers added up."""
    driver, workers = THIS_PROCESS.take(), WORKERS.take()
    table = Table("seconds", box=None)
    for who in ("driver", "workers, added up"):
        table.add_column(who, justify="right", no_wrap=True)
    longest = {name: driver.get(name, 0) + workers.get(name, 0) for name in driver | workers}
    for name in sorted(longest, key=lambda name: -longest[name]):
        cells = (f"{stages[name]:.2f}" if name in stages else "" for stages in (driver, workers))
        table.add_row(name, *cells)
    console.print(table)
    console.print("Workers train side by side, and publishing goes on beside them.")


def _store(options: argparse.Namespace) -> str:
    return "" if options.store == "runs" else f" --store {shlex.quote(options.store)}"


def _given(options: argparse.Namespace) -> str:
    """The options for locations, to be repeated in the next command."""
    given = {"--store": options.store if options.store != "runs" else None}
    given |= {"--tracking": options.tracking, "--address": options.address}
    words = [word for name, value in given.items() if value for word in (name, str(value))]
    return "".join(f" {shlex.quote(masked(word))}" for word in words)


def _sync(options: argparse.Namespace, console: Console) -> int:
    loaded = _loaded(options)
    from sweeps.runner import sync_sweep
    from sweeps.store import Store

    synced = sync_sweep(loaded, Store(options.store), options.tracking)
    say(console, f"{count(synced.published, 'trial')} published to {masked(synced.tracking)}")
    return 1 if synced.report_failures else 0


def _introduction(spec: Spec, extra: int) -> str:
    """What will be done; ``extra`` search trials are in addition to the spec's."""
    what = f"{count(len(spec.datasets), 'dataset')} × {count(len(spec.methods), 'row')}"
    confirmed = f"{count(spec.confirm_seeds, 'seed')} confirmed"
    if not any(spec.space(row).searched for row in spec.methods):
        return f"{spec.name} · {what} · {confirmed}"
    limit = spec.search.limit
    bounds = [] if limit is None else [count(limit + extra, "search trial")]
    if spec.search.time is not None:
        bounds.append(f"{spec.search.time:g} s of training")
    search = "a grid" if spec.search.is_grid else " or ".join(bounds)
    return f"{spec.name} · {what} · {search} each + {confirmed}"
