"""Sweeps as Ray jobs: submitted to a cluster, followed, stopped and resumed.

Ray's Jobs API runs a command once. A sweep that was stopped, or whose head died, continues
when the same spec is submitted again: the store knows what is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sweeps.errors import UserError
from sweeps.host.secrets import masked
from sweeps.ray_backend.user_code import copy, copy_together, local_modules
from sweeps.spec.outline import Outline

_SWEEP, _STORE_KEY, _AS = "calsweep.sweep", "calsweep.store", "calsweep.digest"
"""Keys in a job's metadata: the sweep's name, its store, and a digest of how it was submitted."""
DEFAULT_ADDRESS = "http://127.0.0.1:8265"
ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
STOP_SECONDS = 120
"""Seconds that a sweep has for a clean exit; Ray's own default is 3."""
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 300.0
"""How long a cluster may be unreachable while a job is followed."""
STORE = '"${CALSWEEP_STORE:-$HOME/calsweep/runs}"'
"""Where the cluster stores sweeps, unless a submission names a store."""


class UnreachableError(UserError):
    """The cluster's address does not answer."""


class Running(NamedTuple):
    """A job that has not ended: its name, its store as given, and the digest of its content."""

    name: str
    store: str
    digest: str


class Ended(NamedTuple):
    """How a job ended: ``SUCCEEDED``, ``FAILED`` or ``STOPPED``, and its command's exit code."""

    status: str
    exit_code: int | None
    message: str


class Jobs:
    """The jobs of one cluster. Raises ``UserError`` if it cannot be reached or refuses."""

    def __init__(self, address: str | None = None) -> None:
        # RAY_ADDRESS usually names another port, which does not accept jobs.
        named = [os.environ.get(name, "") for name in ADDRESSES]
        urls = [value for value in named if value.startswith("http")]
        self.address = address or next(iter(urls), DEFAULT_ADDRESS)
        if not self.address.startswith(("http://", "https://")):
            raise UserError(
                f"--address: found {self.address!r}; jobs go to the cluster's dashboard: write "
                "http://HOST:8265"
            )
        from ray.job_submission import JobSubmissionClient

        logging.getLogger("ray").setLevel(logging.ERROR)  # it logs every upload
        with _explained(self.address), _without(ADDRESSES):
            # Ray's environment variables would override the given address.
            self._client = JobSubmissionClient(self.address)

    def running(self, sweep: str) -> Running | None:
        """The job that runs the sweep now or will soon; None if there is none."""
        for job in self._of(sweep):
            if not job.status.is_terminal():
                about = job.metadata or {}
                return Running(
                    str(job.submission_id), about.get(_STORE_KEY, ""), about.get(_AS, "")
                )
        return None

    def submit(self, sweep: str, command: str, directory: Path, store: str, digest: str) -> str:
        """Run ``command`` on the cluster in a copy of ``directory``; returns the new job's name.

        ``store`` and ``digest`` are reported when the sweep is submitted again while it runs.
        """
        numbers = [_number(str(job.submission_id)) for job in self._of(sweep)]
        job = f"{sweep}-{max(numbers, default=0) + 1}"
        with _explained(self.address):
            self._client.submit_job(
                entrypoint=command,
                submission_id=job,
                metadata={_SWEEP: sweep, _STORE_KEY: store, _AS: digest},
                runtime_env={
                    "working_dir": str(directory),
                    "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)},
                },
            )
        return job

    def stop(self, job: str) -> Ended:
        """Ask the job to end and wait until it has."""
        with _explained(self.address):
            self._client.stop_job(job)
        return self._wait(job)

    def follow(self, job: str, write: Callable[[str], None]) -> Ended:
        """Pass on the job's output until it ends, even across lost connections."""
        passed = 0
        while True:
            received = 0

            async def listen() -> None:
                nonlocal passed, received
                async for text in self._client.tail_job_logs(job):
                    # After a lost connection Ray starts again at the first line.
                    received += len(text)
                    fresh = text[max(0, len(text) - (received - passed)) :]
                    if received > passed:
                        write(fresh)
                        passed = received

            with contextlib.suppress(Exception):  # whatever it was: the job's own status decides
                asyncio.run(listen())
            if self._status(job).is_terminal():
                return self._wait(job)
            time.sleep(_LOOK_SECONDS)

    def _wait(self, job: str) -> Ended:
        while not self._status(job).is_terminal():
            time.sleep(_LOOK_SECONDS)
        with _explained(self.address):
            info = self._client.get_job_info(job)
        code = getattr(info, "driver_exit_code", None)
        return Ended(str(info.status.value), code, str(info.message or ""))

    def _status(self, job: str) -> Any:
        """The job's state, also from a cluster that cannot be reached for a while."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                with _explained(self.address):
                    return self._client.get_job_status(job)
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_SECONDS)

    def _of(self, sweep: str) -> list[Any]:
        with _explained(self.address):
            jobs = self._client.list_jobs()
        return [job for job in jobs if (job.metadata or {}).get(_SWEEP) == sweep]


def working_directory(spec: Path, named: Outline, directory: Path, place: Path) -> Path:
    """Copy what the sweep needs into ``place``; returns the spec's path in it.

    That is the spec, the data files it names by relative paths, and the user's own modules;
    no history, no environment, no other data.
    """
    copy(local_modules(named.written, directory), directory, place)
    return copy_together(spec, named.files, place)


def digest(command: str, directory: Path) -> str:
    """A digest of the command and of all files sent with it."""
    found = hashlib.sha256(command.encode())
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            found.update(f"{path.relative_to(directory)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def entry_point(spec: Path, store: str | None, options: Sequence[str]) -> str:
    """The command that runs the sweep on the cluster, for a shell."""
    words = ["calsweep", "run", str(spec), "--address", "auto", *options]
    return f"{shlex.join(words)} --store {STORE if store is None else shlex.quote(store)}"


@contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    from ray.exceptions import AuthenticationError, RayError

    where = masked(address)
    try:
        yield
    except AuthenticationError:
        raise UserError(
            f"--address {where}: the cluster refuses this request without its token, or with a "
            "wrong one; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file with the "
            "cluster's token"
        ) from None
    except (ConnectionError, OSError) as error:
        raise UnreachableError(
            f"--address {where}: no Ray cluster accepts jobs there ({type(error).__name__}); write "
            "its dashboard's address, e.g. http://head:8265, and check that it can be reached"
        ) from None
    except (RayError, RuntimeError, ValueError) as error:
        message = " ".join(masked(str(error)).split())
        raise UserError(f"--address {where}: the cluster answers: {message[:500]}") from None


def _number(job: str) -> int:
    found = re.search(r"-(\d+)$", job)
    return int(found[1]) if found else 0
