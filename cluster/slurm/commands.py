"""``calsweep submit --slurm`` and what ``calsweep stop`` does with such a job."""

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
"""What a sweep has to end in good order before its job is cancelled by force."""
_LOOK_SECONDS = 2.0
_SETTINGS = ("partition", "account", "time", "nodes", "cpus", "gpus", "memory", "array", "setup")


def add_slurm(parser: argparse.ArgumentParser) -> None:
    """The options of ``calsweep submit`` that go to Slurm."""
    group = parser.add_argument_group("on a Slurm cluster")
    group.add_argument("--slurm", action="store_true", help="as a Slurm job, with sbatch")
    group.add_argument("--partition", metavar="NAME")
    group.add_argument("--account", metavar="NAME")
    group.add_argument(
        "--time",
        metavar="TIME",
        help="of one turn, e.g. 12:00:00; the job takes as many as it needs",
    )
    group.add_argument("--nodes", type=_number, metavar="N", help="with Ray on all (default: 1)")
    group.add_argument("--cpus", type=_number, metavar="N", help="of every node")
    group.add_argument("--gpus", metavar="N|TYPE:N", help="of every node")
    group.add_argument("--mem", metavar="SIZE", dest="memory", help="of every node, e.g. 32G")
    group.add_argument(
        "--array",
        type=_number,
        metavar="N",
        help="N jobs one after the other instead of a requeued one, where Slurm forbids that",
    )
    group.add_argument(
        "--setup", type=Path, metavar="FILE", help="shell commands before the sweep: module load …"
    )
    group.add_argument(
        "--sbatch", action="append", default=[], metavar="OPTION", help="e.g. --sbatch=--qos=long"
    )
    group.add_argument(
        "--write", type=Path, metavar="FILE", help="write the script there; submit nothing"
    )


def check_not_slurm(options: argparse.Namespace) -> None:
    """Raise ``UserError`` for options of Slurm's where a Ray cluster is meant."""
    given = [name for name in (*_SETTINGS, "sbatch", "write") if getattr(options, name)]
    if given:
        name = "mem" if given[0] == "memory" else given[0]
        raise UserError(f"--{name}: goes with --slurm; a Ray cluster has the machines that it has")


def submit(
    options: argparse.Namespace, sweep: str, path: Path, how: Sequence[str], console: Console
) -> int:
    """Submit a sweep that was checked; the command's exit code."""
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
            f"{path}: name: another sweep called {sweep!r} runs as Slurm job {other.number}, with "
            f"the store {other.store}; wait for its end, or choose another name"
        )
    if running:
        number = running[0].number
        say(console, f"{sweep} is there already: {running[0].describe()}")
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
    """Where the job keeps its sweep: all nodes see the file system that this machine sees."""
    given = store or os.environ.get("CALSWEEP_STORE") or "runs"
    return given if "://" in given else str(Path(given).resolve())


def follow(number: str, stop: str, console: Console) -> int:
    """Pass on what a job prints, over its restarts, until it ends; its exit code."""
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
        complain(f"job {number} goes on without being watched; to end it: {stop}")
        return 130
    state = about["JobState"]
    if state != "COMPLETED":
        say(console, f"Slurm job {number}: {state.lower().replace('_', ' ')}")
    code = int(about["ExitCode"].partition(":")[0])
    return 143 if state == "CANCELLED" else code or int(state != "COMPLETED")


def stop(found: Sequence[Job], console: Console) -> int:
    """End a sweep's jobs in good order; a job that waits is taken from the queue."""
    for job in found:
        _stop(job.number)
        say(console, f"stopped Slurm job {job.number}; nothing is lost: submit it again to go on")
    return 0


def _stop(number: str) -> None:
    began, asked = time.monotonic(), ""
    while not _has_ended(number, about := _about(number)):
        state, turn = about["JobState"], about.get("Restarts", "0")
        late = time.monotonic() - began > _STOP_SECONDS
        if late and state == "COMPLETING":
            raise UserError(
                f"Slurm job {number} is cancelled, but its nodes have not let it go yet"
            )
        with suppress(UserError):  # it may just have ended: the next look tells
            if state in WAITING or late:
                slurm_says("scancel", number)
            elif state == "RUNNING" and asked != turn:
                slurm_says("scancel", "--batch", "--signal=USR2", number)
                asked = turn
        time.sleep(_LOOK_SECONDS / 4)


def _has_ended(number: str, about: Mapping[str, str]) -> bool:
    """Whether a job is over: one that is put back into the queue may look so for a moment."""
    if about["JobState"] not in ENDED:
        return False
    time.sleep(_LOOK_SECONDS / 4)
    return _about(number)["JobState"] in ENDED


def _about(number: str) -> dict[str, str]:
    """What Slurm says of a job; of an array, of the part that is not yet done."""
    said = slurm_says("scontrol", "--oneliner", "show", "job", number)
    found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in said.splitlines() if line]
    return next((one for one in found if one["JobState"] not in ENDED), found[0])


def _show_new(name: str, shown: dict[str, int]) -> None:
    """Print what has come to a job's output since the last look."""
    try:
        with Path(name).open("rb") as output:
            output.seek(shown.get(name, 0))
            text = output.read()
    except OSError:  # it has not begun
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
                f"{name}: does not go with --slurm; the job has the nodes that it asks for, and "
                "sees the files that this machine sees"
            )


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a number, e.g. 4")
    return int(text)
