"""``calsweep submit --slurm``, and ``calsweep stop`` for such a job."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from sweeps.errors import UserError
from sweeps.host.console import complain, say
from sweeps.host.slurm import ENDED, WAITING, Job, jobs, slurm_says

_STOP_SECONDS = 600.0
"""Seconds that a sweep has for a clean exit before its job is killed."""
_LOOK_SECONDS = 2.0
_SETTINGS = ("partition", "account", "time", "nodes", "cpus", "gpus", "memory", "array", "setup")


def add_slurm(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``calsweep submit`` for Slurm."""
    group = parser.add_argument_group("on a Slurm cluster")
    group.add_argument("--slurm", action="store_true", help="submit it as a Slurm job, with sbatch")
    group.add_argument("--partition", metavar="NAME", help="as in sbatch")
    group.add_argument("--account", metavar="NAME", help="as in sbatch")
    group.add_argument(
        "--time",
        metavar="TIME",
        help="time limit per start, e.g. 12:00:00; the job is requeued as often as needed",
    )
    group.add_argument(
        "--nodes", type=_number, metavar="N", help="nodes, with Ray on all of them (default: 1)"
    )
    group.add_argument("--cpus", type=_number, metavar="N", help="CPUs per node")
    group.add_argument("--gpus", metavar="N|TYPE:N", help="GPUs per node")
    group.add_argument("--mem", metavar="SIZE", dest="memory", help="memory per node, e.g. 32G")
    group.add_argument(
        "--array",
        type=_number,
        metavar="N",
        help="N jobs one after the other, if Slurm does not allow requeueing",
    )
    group.add_argument(
        "--setup", type=Path, metavar="FILE", help="shell commands before the sweep: module load …"
    )
    group.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="OPTION",
        help="any other option of sbatch, e.g. --sbatch=--qos=long; may be repeated",
    )
    group.add_argument(
        "--write", type=Path, metavar="FILE", help="write the script there; submit nothing"
    )


def check_not_slurm(options: argparse.Namespace) -> None:
    """Raise ``UserError`` for Slurm options without ``--slurm``."""
    given = [name for name in (*_SETTINGS, "sbatch", "write") if getattr(options, name)]
    if given:
        name = "mem" if given[0] == "memory" else given[0]
        raise UserError(f"--{name} requires --slurm; the machines of a Ray cluster are fixed")


def submit(
    options: argparse.Namespace, sweep: str, path: Path, how: Sequence[str], console: Console
) -> int:
    """Submit a checked sweep; returns the command's exit code."""
    from cluster.slurm.script import JobRequest, script

    _check(options)
    store = place(options.store)
    settings = {name: getattr(options, name) for name in _SETTINGS if getattr(options, name)}
    request = JobRequest(**settings, others=tuple(options.sbatch))
    written = script(request, sweep, path.resolve(), store, how)
    if options.write is not None:
        options.write.write_text(written)
        say(console, f"wrote {options.write}; submit it with sbatch {options.write}")
        return 0
    running = jobs(sweep)
    other = next((job for job in running if job.store != store), None)
    if other is not None:
        raise UserError(
            f"{path}: name: another sweep named {sweep!r} runs as Slurm job {other.number}, with "
            f"the store {other.store}; wait for it to end, or choose another name"
        )
    if running:
        number = running[0].number
        say(console, f"{sweep} is already submitted: {running[0].describe()}")
    else:
        said = slurm_says("sbatch", "--parsable", given=written)
        number = said.strip().partition(";")[0]
        say(console, f"submitted Slurm job {number}")
    given = "" if options.store is None else f" --store {shlex.quote(options.store)}"
    stop = f"calsweep stop {sweep}"
    if options.wait:
        return follow(number, stop, console)
    say(console, f"progress  calsweep status {sweep}{given}", f"stop      {stop}")
    return 0


def place(store: str | None) -> str:
    """The job's store: all nodes see the same file system as this machine."""
    given = store or os.environ.get("CALSWEEP_STORE") or "runs"
    return given if "://" in given else str(Path(given).resolve())


def follow(number: str, stop: str, console: Console) -> int:
    """Pass on a job's output, across restarts, until it ends; returns its exit code."""
    shown: dict[str, int] = {}
    try:
        while True:
            about = _about(number)
            ended = _has_ended(number, about)
            _show_new(about.get("StdOut", ""), shown)
            if ended:
                break
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        complain(f"job {number} continues unattended; to stop it: {stop}")
        return 130
    state = about["JobState"]
    if state != "COMPLETED":
        say(console, f"Slurm job {number}: {state.lower().replace('_', ' ')}")
    code = int(about["ExitCode"].partition(":")[0])
    return 143 if state == "CANCELLED" else code or int(state != "COMPLETED")


def stop(found: Sequence[Job], console: Console) -> int:
    """Stop a sweep's jobs cleanly; a waiting job is removed from the queue."""
    for job in found:
        _stop(job.number)
        say(console, f"stopped Slurm job {job.number}; nothing is lost: submit again to continue")
    return 0


def _stop(number: str) -> None:
    began, asked = time.monotonic(), ""
    while not _has_ended(number, about := _about(number)):
        state, turn = about["JobState"], about.get("Restarts", "0")
        late = time.monotonic() - began > _STOP_SECONDS
        if late and state == "COMPLETING":
            raise UserError(
                f"Slurm job {number} is cancelled, but its nodes have not released it yet"
            )
        with suppress(UserError):  # it may just have ended: the next check shows it
            if state in WAITING or late:
                slurm_says("scancel", number)
            elif state == "RUNNING" and asked != turn:
                slurm_says("scancel", "--batch", "--signal=USR2", number)
                asked = turn
        time.sleep(_LOOK_SECONDS / 4)


def _has_ended(number: str, about: Mapping[str, str]) -> bool:
    """Whether a job has ended: a requeued one may look so for a moment."""
    if about["JobState"] not in ENDED:
        return False
    time.sleep(_LOOK_SECONDS / 4)
    return _about(number)["JobState"] in ENDED


def _about(number: str) -> dict[str, str]:
    """Slurm's information on a job; for an array, on the part that is not yet done."""
    said = slurm_says("scontrol", "--oneliner", "show", "job", number)
    found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in said.splitlines() if line]
    return next((one for one in found if one["JobState"] not in ENDED), found[0])


def _show_new(name: str, shown: dict[str, int]) -> None:
    """Print new output of a job since the last check."""
    try:
        with Path(name).open("rb") as output:
            output.seek(shown.get(name, 0))
            text = output.read()
    except OSError:  # it has not started
        return
    shown[name] = shown.get(name, 0) + len(text)
    sys.stdout.write(text.decode(errors="replace"))
    sys.stdout.flush()


def _check(options: argparse.Namespace) -> None:
    for name, given in {
        "--address": options.address,
        "--include": options.include,
        "--concurrent": options.concurrent,
    }.items():
        if given:
            raise UserError(
                f"{name} cannot be used with --slurm; the job has the nodes that it requests, and "
                "sees the same files as this machine"
            )


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a whole number from 1 to 10000")
    return int(text)
