"""The connection to Ray: one started on this machine, or a running cluster."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from sweeps.errors import UserError
from sweeps.host.process import handlers_kept, quiet
from sweeps.ray_backend.local_ray import BackendError, ensure_alive, lost, own_ray
from sweeps.ray_backend.template import Template
from sweeps.ray_backend.user_code import stage
from sweeps.ray_backend.watch import Check
from sweeps.spec import LoadedSpec

HOST_PORT = re.compile(r"([^\s:/]+):(\d{1,5})")
REACH_SECONDS = 5.0
AWAY_SECONDS = 15.0
"""A head may be restarted; a minute after it is gone Ray aborts its drivers."""
INSIDE_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for submitted jobs, which have the user's modules with them."""


class Cluster(NamedTuple):
    """Where the trials run: ``address`` None means a Ray of the sweep's own on this machine.

    ``concurrent`` requests room for that many trials at once, whatever there is now. ``cpus`` is
    what the sweep's own Ray may use: by default what was allocated to this process.
    """

    address: str | None = None
    concurrent: int | None = None
    cpus: int | None = None


@contextmanager
def connected(
    cluster: Cluster, loaded: LoadedSpec, workspace: Path, template: Template | None = None
) -> Iterator[Check]:
    """Ray, for as long as the context lasts; yields a check that raises if Ray is lost.

    The user's own modules that the spec names are shipped to the nodes of a cluster. Raises
    ``UserError`` if nothing answers at the address, ``BackendError`` if Ray does not start; so does
    the check.
    """
    import ray

    if cluster.address is None:
        with own_ray(workspace, cluster.cpus, template):
            yield ensure_alive
        return
    _reach(cluster.address)
    options: dict[str, Any] = {
        "address": cluster.address,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    if INSIDE_A_JOB not in os.environ and stage(loaded, Path.cwd(), workspace / "modules"):
        options["runtime_env"] = {"working_dir": str(workspace / "modules")}
    with quiet({"ray": logging.ERROR}):
        with handlers_kept(signal.SIGTERM):
            _join(cluster.address, options)
        try:
            yield Reachable(places())
        finally:
            with handlers_kept(signal.SIGTERM):  # which Ray's core resets as it goes
                ray.shutdown()


def places() -> dict[str, tuple[str, int]]:
    """The addresses of the cluster's processes that this driver depends on."""
    import ray

    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    mine = [node for node in ray.nodes() if node["NodeID"] == context.get_node_id()]
    found = {"the cluster's head": (host.strip("[]"), int(port))}
    for node in mine:
        address = (str(node["NodeManagerAddress"]), int(node["NodeManagerPort"]))
        found["the raylet of the driver's machine"] = address
    return found


class Reachable:
    """A check that raises ``BackendError`` if an address has not answered for a while."""

    def __init__(
        self, places: Mapping[str, tuple[str, int]], patience: float = AWAY_SECONDS
    ) -> None:
        self._places = places
        self._patience = patience
        self._answered = dict.fromkeys(places, time.monotonic())

    def __call__(self) -> None:
        """Try to connect to each of them."""
        for name, (host, port) in self._places.items():
            try:
                socket.create_connection((host, port), timeout=REACH_SECONDS).close()
                self._answered[name] = time.monotonic()
            except OSError as error:
                away = time.monotonic() - self._answered[name]
                if away >= self._patience:
                    where = f"{name} at {host}:{port} has not answered for {away:.0f} s ({error})"
                    raise BackendError(lost(where)) from None


def _reach(address: str) -> None:
    """Raise ``UserError`` at once if nothing answers: Ray would keep trying for minutes."""
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if named == "local":  # which Ray itself takes for a new one, open to other machines
        raise UserError(
            f"--address {address}: found {named!r}, which is not a cluster; leave --address "
            "out for a Ray of the sweep's own"
        )
    found = HOST_PORT.fullmatch(named)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=REACH_SECONDS).close()
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        raise UserError(
            f"--address {address}: nothing answers there ({error}); write the address of the "
            "cluster's head as its machines know it, e.g. 10.0.0.1:6379, or use calsweep submit"
        ) from None


def _join(address: str, options: dict[str, Any]) -> None:
    import ray

    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            with _into(output):
                ray.init(**options)
        except (ConnectionError, ValueError, ImportError, RuntimeError) as error:
            output.seek(0)
            raise UserError(f"--address {address}: {_refusal(error, output.read())}") from None


@contextmanager
def _into(file: IO[str]) -> Iterator[None]:
    """Redirect standard error: Ray's core, which is not Python, reports every failed attempt."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _refusal(error: Exception, output: str) -> str:
    if "InvalidAuthToken" in output or "Unauthenticated" in output:
        return (
            "the Ray cluster there requires a token, and this process has none or a wrong one; set "
            "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file with the cluster's token"
        )
    return (
        f"no Ray cluster answers there: {' '.join(str(error).split())[:300]}; run this on a "
        "machine of the cluster, or use calsweep submit from elsewhere"
    )
