"""The way to Ray: one on this machine, or a cluster that is running."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from sweeps.packing import stage
from sweeps.spec import LoadedSpec, SpecError

HOST_PORT = re.compile(r"([^\s:/]+):(\d{1,5})")
REACH_SECONDS = 5.0
INSIDE_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for what was submitted; the job has brought the user's modules along then."""


class Cluster(NamedTuple):
    """Where the trials run: ``address`` None means a Ray of the sweep's own on this machine.

    ``concurrent`` asks for room for so many trials at once, whatever there is now.
    """

    address: str | None = None
    concurrent: int | None = None


def connect(cluster: Cluster, loaded: LoadedSpec, scratch: Path) -> None:
    """Connect this process. Raises ``SpecError`` if nothing answers at the address.

    The user's own modules that the spec names are brought to the nodes of a cluster.
    """
    import ray

    on_sigterm = signal.getsignal(signal.SIGTERM)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address is None:
        # Without "local" Ray would join any cluster it finds here.
        options |= {"address": "local", "include_dashboard": False}
    else:
        _reach(cluster.address)
        options |= {"address": cluster.address}
        if INSIDE_A_JOB not in os.environ and stage(loaded, Path.cwd(), scratch / "modules"):
            options["runtime_env"] = {"working_dir": str(scratch / "modules")}
    try:
        if cluster.address is None:
            ray.init(**options)
        else:
            _join(cluster.address, options)
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own there


def _reach(address: str) -> None:
    """Say at once that nobody listens: Ray would try for minutes."""
    found = HOST_PORT.fullmatch(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise SpecError(
            f"--address {address}: nothing answers there ({error}); write the address of the "
            "cluster's head as its machines know it, e.g. 10.0.0.1:6379, or use calsweep submit"
        ) from None


def _join(address: str, options: dict[str, Any]) -> None:
    import ray

    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            with _into(said):
                ray.init(**options)
        except (ConnectionError, ValueError, ImportError, RuntimeError) as error:
            said.seek(0)
            raise SpecError(f"--address {address}: {_refusal(error, said.read())}") from None


@contextmanager
def _into(file: IO[str]) -> Iterator[None]:
    """Ray's core writes every failed attempt to the terminal, from beside Python."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _refusal(error: Exception, said: str) -> str:
    if "InvalidAuthToken" in said or "Unauthenticated" in said:
        return (
            "the Ray cluster there wants a token, and this process has none or another; set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file with the cluster's token"
        )
    return (
        f"no Ray cluster answers there: {' '.join(str(error).split())[:300]}; run this on a "
        "machine of the cluster, or use calsweep submit from elsewhere"
    )
