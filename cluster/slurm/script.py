"""The script for ``sbatch`` that runs a sweep on Slurm."""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from sweeps.errors import UserError
from sweeps.host.slurm import comment, job_name

TEMPLATE = Path(__file__).parent / "job.sh.j2"
WARNING_SECONDS = 180
"""How long before the time limit a sweep is asked to exit."""
_SHORTEST_MINUTES = 10
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


@dataclass(frozen=True)
class JobRequest:
    """The requested resources: options of ``calsweep submit --slurm``; counts are per node."""

    partition: str | None = None
    account: str | None = None
    time: str | None = None
    nodes: int = 1
    cpus: int | None = None
    gpus: str | None = None
    memory: str | None = None
    array: int | None = None
    setup: Path | None = None
    others: tuple[str, ...] = ()


def sbatch_options(request: JobRequest, sweep: str, store: str, directory: Path) -> list[str]:
    """The options of ``sbatch``, as written in the script."""
    named = {
        "job-name": job_name(sweep),
        "comment": comment(store),
        "chdir": str(directory),
        # Earlier output is kept after a restart.
        "output": f"calsweep-{sweep}-{'%A_%a' if request.array else '%j'}.out",
        "open-mode": "append",
        "nodes": str(request.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": request.cpus and str(request.cpus),
        "gpus-per-node": request.gpus,
        "mem": request.memory,
        "partition": request.partition,
        "account": request.account,
        "time": request.time,
        "signal": f"B:USR1@{WARNING_SECONDS}",
        "array": request.array and f"1-{request.array}%1",
    }
    given = [f"--{name}={_quoted(value)}" for name, value in named.items() if value]
    return [*given, "--requeue", *request.others]


def script(request: JobRequest, sweep: str, spec: Path, store: str, how: Sequence[str]) -> str:
    """The script that runs ``spec``; ``how`` are the options of ``calsweep run``.

    Raises ``UserError`` for requests that Slurm would refuse only later, or never.
    """
    check(request)
    module = ["cluster.slurm.ray_nodes"] if request.nodes > 1 else ["sweeps.cli", "run"]
    words = [sys.executable, "-m", *module, str(spec), "--store", store, *how]
    environment = Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    return environment.from_string(TEMPLATE.read_text()).render(
        options=sbatch_options(request, sweep, store, Path.cwd()),
        spec=shlex.quote(str(spec)),
        digest=hashlib.sha256(spec.read_bytes()).hexdigest(),
        words=shlex.join(words),
        setup=shlex.quote(str(request.setup.resolve())) if request.setup else "",
    )


def check(request: JobRequest) -> None:
    """Raise ``UserError`` for an invalid request."""
    if request.time is not None:
        found = minutes(request.time)
        if found is None:
            raise UserError(
                f"--time: found {request.time!r}; write it as Slurm does: minutes, hours:minutes:"
                "seconds or days-hours, e.g. 12:00:00"
            )
        if found < _SHORTEST_MINUTES:
            raise UserError(
                f"--time: found {request.time}; a job takes a minute to start and ends "
                f"{WARNING_SECONDS} s before its limit: write at least {_SHORTEST_MINUTES} minutes"
            )
    if request.setup is not None and not request.setup.is_file():
        raise UserError(f"--setup: no file {request.setup}; name a shell file")
    for other in request.others:
        if not other.startswith("-") or "\n" in other:
            raise UserError(
                f"--sbatch: found {other!r}; write an option, as in --sbatch=--qos=long"
            )


def minutes(time: str) -> float | None:
    """A time as Slurm writes it, in minutes; None if it is not one.

    Forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
    days-hours:minutes:seconds.
    """
    found = _TIME.fullmatch(time)
    if found is None:
        return None
    days, *rest = found.groups()
    first, second, third = (int(part or 0) for part in rest)
    if days is not None:
        return int(days) * 1440 + first * 60 + second + third / 60
    if rest[2] is not None:
        return first * 60 + second + third / 60
    return first + second / 60


def _quoted(value: str) -> str:
    # sbatch interprets quotes, but not backslashes, in the lines of a script.
    return f'"{value}"' if re.search(r"[\s#']", value) else value
