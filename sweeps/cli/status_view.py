"""The output of ``calsweep status``: the state of a sweep, while it runs or afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calibration.text import count
from sweeps.engine.cell import Cell, PlannedTrial
from sweeps.engine.progress import describe_best, format_value
from sweeps.errors import UserError
from sweeps.host import slurm
from sweeps.host.console import print_whole, say
from sweeps.store import Store
from sweeps.sweep import Sweep


class TrialView(NamedTuple):
    """The state of one trial: ``state`` is done, failed, pruned, running or waiting."""

    planned: PlannedTrial
    state: str
    epoch: int
    nll: float
    seconds: float


def trials(sweep: Sweep) -> list[TrialView]:
    """Every trial that was suggested or will be confirmed, in the order of the plan."""
    return [_trial(sweep, trial) for trial in sweep.plan.trials.values()]


def state(sweep: Sweep) -> str:
    """In a few words: running, finished, trained or interrupted."""
    plan = sweep.plan
    holder = sweep.store.lock(sweep.name).holder()
    if holder is not None:
        queued = slurm_jobs(sweep.name, sweep.store)
        return f"running: {holder}" + "".join(f"; {job.describe()}" for job in queued[:1])
    if plan.finished:
        return "finished" + (f", {count(plan.failed, 'trial')} failed" if plan.failed else "")
    left = plan.total - plan.done
    queued = slurm_jobs(sweep.name, sweep.store)
    if queued:
        return f"{count(left, 'trial')} left; {queued[0].describe()}"
    confirmed = [trial for place in plan.cells for trial in plan.confirmed(*place)]
    searched = all(cell.study.exhausted for cell in plan.cells.values())
    if searched and all(plan.result(trial) is not None for trial in confirmed):
        # Killed at the very end, or a calibrator has been installed since.
        return (
            f"trained, {count(left, 'trial')} not evaluated with every calibrator: the same "
            "calsweep run does that"
        )
    return f"interrupted, {count(left, 'trial')} left: the same calsweep run continues it"


def slurm_jobs(name: str, store: Store) -> list[slurm.Job]:
    """The jobs in Slurm's queue that run or will run a sweep; none if Slurm does not answer."""
    place = store.root if store.local is None else store.local.resolve()
    try:
        return slurm.jobs(name, str(place))
    except UserError:  # the store's state is worth showing without it
        return []


def print_status(sweep: Sweep, console: Console, *, every_trial: bool = False) -> None:
    """Print the state, a line per dataset and method, and failures."""
    plan = sweep.plan
    found = trials(sweep)
    lines = [f"{sweep.name}: {state(sweep)}", f"{plan.done} of {count(plan.total, 'trial')} done"]
    if plan.pruned:
        lines[-1] += f", {plan.pruned} of them stopped early"
    say(console, *lines)
    print_whole(console, (_trial_table if every_trial else _cell_table)(sweep, found))
    for reason, times in plan.reasons.most_common(5):
        say(console, f"{times} failed: {' '.join(reason.split())[:300]}")
    for cell in plan.cells.values():
        if cell.hopeless:
            say(console, f"{cell.name}: every search trial failed, so it has no row")
    if sweep.store.read_file(sweep.name, "report.html") is not None:
        say(console, f"report    {sweep.store.location(sweep.name, 'report.html')}")


def _trial(sweep: Sweep, trial: PlannedTrial) -> TrialView:
    ended = sweep.plan.summary(trial)
    if ended is not None:
        return TrialView(trial, ended.status, ended.epochs, ended.nll, ended.seconds)
    live = sweep.store.live(trial.key)
    if not live or not live.get("curve"):
        return TrialView(trial, "waiting", 0, math.nan, 0.0)
    curve: list[dict[str, Any]] = live["curve"]
    best = min(
        (float(row["validation/nll"]) for row in curve if "validation/nll" in row), default=math.nan
    )
    seconds = live["times"][-1] - live["times"][0]
    return TrialView(trial, "running", int(curve[-1]["epoch"]), best, seconds)


def _cell_table(sweep: Sweep, found: list[TrialView]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("dataset", "row", "search", "confirm", "running", "failed", "best so far"):
        table.add_column(heading)
    for cell in sweep.plan.cells.values():
        here = [trial for trial in found if trial.planned.cell == (cell.dataset, cell.row)]
        table.add_row(
            Text(cell.dataset),
            Text(cell.row),
            f"{_count(here, 'search')}/{_budget(cell)}",
            f"{_count(here, 'confirm')}/{cell.seeds}",
            ", ".join(f"epoch {t.epoch}" for t in here if t.state == "running"),
            Text(str(cell.failed or ""), style="red"),
            Text(describe_best(sweep.plan, cell)),
        )
    return table


def _trial_table(sweep: Sweep, found: list[TrialView]) -> Table:
    table = Table(box=None, pad_edge=False)
    headings = [*("trial", "dataset", "row", "phase", "state", "epoch", "validation NLL", "s")]
    headings.append("settings")
    for heading in headings:
        table.add_column(heading, no_wrap=heading == "trial")
    for trial in found:
        planned = trial.planned
        phase = planned.config.phase
        which = f"seed {planned.config.seed}" if phase == "confirm" else f"#{planned.number}"
        table.add_row(
            planned.key[:12],
            Text(planned.config.dataset_name),
            Text(planned.row),
            f"{phase} {which}",
            Text(trial.state, style="red" if trial.state == "failed" else ""),
            str(trial.epoch or ""),
            "" if math.isnan(trial.nll) else f"{trial.nll:.4f}",
            f"{trial.seconds:.1f}",
            Text(" ".join(_searched(sweep, planned))),
        )
    return table


def _searched(sweep: Sweep, trial: PlannedTrial) -> Iterator[str]:
    for name in sweep.plan.cells[trial.cell].study.space.searched:
        yield f"{name}={format_value(trial.config.hyperparameters[name])}"


def _count(found: list[TrialView], phase: str) -> int:
    ended = ("done", "failed", "pruned")
    return sum(trial.planned.config.phase == phase and trial.state in ended for trial in found)


def _budget(cell: Cell) -> str:
    return "…" if cell.study.budget is None else str(cell.study.budget)
