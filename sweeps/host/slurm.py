"""Which Slurm jobs run a sweep. The queue itself is asked: nobody else need remember."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NamedTuple

from sweeps.errors import UserError

_ANSWER_SECONDS = 60.0
_STORE = "calsweep store "
_SEPARATOR = "\x1f"
_FIELDS = ("%F", "%T", "%r", "%N", "%S", "%k")
"""Of squeue: the job's number (that of the array, if it is one), its state and the reason for it,
its nodes, when it starts or has started, and its comment, which holds the store."""


class Job(NamedTuple):
    """A job that waits, runs or is about to end; ``store`` is where its sweep lies."""

    number: str
    state: str
    reason: str
    nodes: str
    start: str
    store: str

    @property
    def waits(self) -> bool:
        """Whether it has not started, or is to start again."""
        return self.state in WAITING

    def describe(self) -> str:
        """A line for people."""
        state = self.state.lower().replace("_", " ")
        if not self.waits:
            return f"Slurm job {self.number}: {state} on {self.nodes} since {self.start}"
        reason = "" if self.reason in ("", "None") else f" ({self.reason})"
        when = "" if self.start in ("", "N/A") else f", not before {self.start}"
        return f"Slurm job {self.number}: {state}{reason}{when}"


def job_name(sweep: str) -> str:
    """What the job of a sweep is called."""
    return f"calsweep-{sweep}"


def comment(store: str) -> str:
    """What the job of a sweep in this store says of itself."""
    return f"{_STORE}{store}"


def is_there() -> bool:
    """Whether this machine belongs to a Slurm cluster."""
    return shutil.which("squeue") is not None


def jobs(sweep: str, store: str | None = None) -> list[Job]:
    """This user's jobs that have not ended and run the sweep, in any store or in one.

    Raises ``UserError`` if Slurm does not answer; there are none where there is no Slurm.
    """
    if not is_there():
        return []
    words = ["squeue", "--noheader", "--user", str(os.getuid()), "--name", job_name(sweep)]
    said = slurm_says(*words, "--states", "all", "--format", _SEPARATOR.join(_FIELDS))
    found = {job.number: job for job in _read(said) if job.state not in ENDED}
    return [job for job in found.values() if store in (None, job.store)]


WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED"}
ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
}
"""The states of jobs that Slurm remembers for a while after they have ended."""


def slurm_says(*command: str, given: str | None = None) -> str:
    """What a command of Slurm's prints. Raises ``UserError`` with its complaint if it fails."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_ANSWER_SECONDS
        )
    except FileNotFoundError:
        raise UserError(
            f"{command[0]}: there is no such command; run this on a machine of the Slurm cluster, "
            "such as its login node"
        ) from None
    except ValueError:  # a name with a null byte
        raise UserError(f"{command[0]}: cannot be asked for {command[-1]!r}") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]}: Slurm has not answered for {_ANSWER_SECONDS:g} s") from None
    if done.returncode:
        raise UserError(f"{command[0]}: {' '.join(done.stderr.split())[:500]}")
    return done.stdout


def _read(said: str) -> list[Job]:
    """The lines of squeue: of an array, first what waits and then what runs."""
    found = []
    for line in said.splitlines():
        number, state, reason, nodes, start, text = line.split(_SEPARATOR, 5)
        if text.startswith(_STORE):  # not one of somebody's own making
            store = text.removeprefix(_STORE).strip()
            found.append(Job(number, state, reason, nodes, start, store))
    return sorted(found, key=lambda job: not job.waits)
