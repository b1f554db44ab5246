"""Which Slurm jobs run a sweep, according to Slurm's own queue."""

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
"""Fields of squeue: the job's number (that of its array, if any), its state and the reason for
it, its nodes, when it starts or started, and its comment, which names the store."""


class Job(NamedTuple):
    """A job that is waiting, running or about to end; ``store`` is the store of its sweep."""

    number: str
    state: str
    reason: str
    nodes: str
    start: str
    store: str

    @property
    def waits(self) -> bool:
        """Whether it has not started, or will be restarted."""
        return self.state in WAITING

    def describe(self) -> str:
        """The job in one line."""
        state = self.state.lower().replace("_", " ")
        if not self.waits:
            return f"Slurm job {self.number}: {state} on {self.nodes} since {self.start}"
        reason = "" if self.reason in ("", "None") else f" ({self.reason})"
        when = "" if self.start in ("", "N/A") else f", not before {self.start}"
        return f"Slurm job {self.number}: {state}{reason}{when}"


def job_name(sweep: str) -> str:
    """The name of a sweep's job."""
    return f"calsweep-{sweep}"


def comment(store: str) -> str:
    """The comment of a job that runs a sweep in this store."""
    return f"{_STORE}{store}"


def is_there() -> bool:
    """Whether this machine belongs to a Slurm cluster."""
    return shutil.which("squeue") is not None


def jobs(sweep: str, store: str | None = None) -> list[Job]:
    """This user's unfinished jobs that run the sweep, in any store or in one.

    Raises ``UserError`` if Slurm does not answer; empty if there is no Slurm.
    """
    if not is_there():
        return []
    words = ["squeue", "--noheader", "--user", str(os.getuid()), "--name", job_name(sweep)]
    output = slurm_says(*words, "--states", "all", "--format", _SEPARATOR.join(_FIELDS))
    found = {job.number: job for job in _read(output) if job.state not in ENDED}
    return [job for job in found.values() if store in (None, job.store)]


WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED"}
ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
}
"""The states of ended jobs, which Slurm keeps listing for a while."""


def slurm_says(*command: str, given: str | None = None) -> str:
    """The output of a Slurm command. Raises ``UserError`` with its error message if it fails."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_ANSWER_SECONDS
        )
    except FileNotFoundError:
        raise UserError(
            f"{command[0]}: no such command; run this on a machine of the Slurm cluster, "
            "such as its login node"
        ) from None
    except ValueError:  # a name with a null byte
        raise UserError(f"{command[0]}: not a valid argument: {command[-1]!r}") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]}: no answer from Slurm in {_ANSWER_SECONDS:g} s") from None
    if done.returncode:
        raise UserError(f"{command[0]}: {' '.join(done.stderr.split())[:500]}")
    return done.stdout


def _read(output: str) -> list[Job]:
    """The jobs in the output of squeue, waiting ones first."""
    found = []
    for line in output.splitlines():
        number, state, reason, nodes, start, text = line.split(_SEPARATOR, 5)
        if text.startswith(_STORE):  # otherwise it was not submitted by calsweep
            store = text.removeprefix(_STORE).strip()
            found.append(Job(number, state, reason, nodes, start, store))
    return sorted(found, key=lambda job: not job.waits)
