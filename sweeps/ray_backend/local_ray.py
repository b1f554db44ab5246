"""The driver's own, private Ray on this machine.

It listens on the loopback interface only, requires a token that only this user can read, keeps its
files in the driver's workspace and ends with it. While it runs, the user's settings for Ray in the
environment are replaced.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sweeps.errors import UserError
from sweeps.host import allocation
from sweeps.host.environment import variables
from sweeps.host.process import handlers_kept, quiet
from sweeps.host.reaper import end_processes
from sweeps.ray_backend import launch_worker
from sweeps.ray_backend.template import Template

_TRIES = 6
NEEDED = ("raylet", "gcs_server")
"""The processes without which Ray cannot work."""


class BackendError(UserError):
    """Ray did not start, or was lost; the message says which, why, and what to do."""

    exit_code = 1


@contextmanager
def own_ray(
    workspace: Path, cpus: int | None = None, template: Template | None = None
) -> Iterator[None]:
    """Ray, started and connected, for as long as the context lasts. Raises ``BackendError``.

    It has ``cpus`` CPUs, or as many as are allocated to this process, and the allocated GPUs.
    Its workers are forked from the ``template``, if there is one.
    """
    import ray

    if ray.is_initialized():
        raise BackendError("this process is already connected to Ray; call ray.shutdown() first")
    token = workspace / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    # Ray lets everybody write to its directory; nobody else can reach into the one above it.
    home = workspace / "r"
    with quiet({"ray": logging.ERROR}), _private(token):
        count = cpus or allocation.cpus().number
        forked = template.serve(workspace) if template else {}
        started(lambda: _init(home, count, forked), lambda: _clear(home))
        try:
            yield
        finally:
            _shut_down()


def started(start: Callable[[], None], clear: Callable[[], None], tries: int = _TRIES) -> None:
    """Start Ray, again after a clean shutdown if it fails. Raises ``BackendError``.

    On a busy machine the half minute that Ray gives its processes, which is fixed in its
    code, may not be enough.
    """
    for left in reversed(range(tries)):
        try:
            start()
            return
        except Exception as error:  # Ray raises bare exceptions, too
            clear()
            if not left:
                raise BackendError(
                    f"Ray did not start on this machine, tried {tries} times: "
                    f"{' '.join(str(error).split())[:300]}; nothing is lost: run the same command "
                    "again when the machine is less busy"
                ) from error


def ensure_alive() -> None:
    """Raise ``BackendError`` if a process that Ray needs on this machine has ended."""
    from ray._private import worker  # there is no public way

    node = worker._global_node
    if node is None:
        return
    for name, process in node.dead_processes():
        if name in NEEDED:
            raise BackendError(lost(f"its process {name} on this machine {_end(process)}"))


def lost(how: str) -> str:
    """The message if Ray is lost in the middle of a sweep."""
    return (
        f"Ray was lost: {how}; every trial that is done is recorded, and the same command "
        "continues with the others"
    )


def _end(process: Any) -> str:
    code = process.returncode
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by signal {signal.Signals(-code).name} (by a user, or for lack of memory)"


def _init(home: Path, cpus: int, forked: dict[str, str]) -> None:
    import ray

    home.mkdir()
    settings: dict[str, str | None] = {"TMPDIR": str(home), **forked}
    launcher = {"setup_worker_path": launch_worker.__file__} if forked else {}
    with variables(settings), handlers_kept(signal.SIGTERM), _without_helpers(**launcher):
        ray.init(
            address="local",  # without it Ray would join any cluster it finds here
            num_cpus=cpus,
            num_gpus=allocation.gpus(),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(home),
        )


@contextmanager
def _without_helpers(**launcher: str) -> Iterator[None]:
    """Start Ray without what is not used here: dashboard, autoscaler and log forwarding.

    Each is a Python process that takes a second of a core; ``ray.init`` waits for the first,
    also with ``include_dashboard=False``, and has no argument for the others.
    """
    from ray._private import node, parameter

    without: dict[str, Any] = {"no_monitor": True, "include_log_monitor": False, **launcher}
    parameters = partial(parameter.RayParams, **without)
    with (
        _replaced(parameter, "RayParams", parameters),
        _replaced(node.Node, "start_api_server", lambda *_, **__: None),
    ):
        yield


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _clear(home: Path) -> None:
    """Remove everything that a failed start has left."""
    _shut_down()
    end_processes(home.parent)
    shutil.rmtree(home, ignore_errors=True)


def _shut_down() -> None:
    import ray

    # Ray's core resets SIGTERM behind Python's back as it goes: without a handler the signal
    # would end the report that follows, and with it the process.
    with handlers_kept(signal.SIGTERM), suppress(Exception):  # of a Ray that is lost
        ray.shutdown()


@contextmanager
def _private(token: Path) -> Iterator[None]:
    """Ray's settings for a single machine; the previous ones are restored at the end."""
    from ray._private import ray_constants, worker
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    def reread() -> None:
        # Ray may have been imported before. The configuration first: a thread of Ray's that
        # is about to end looks for the token that the configuration asks for.
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()

    values = {
        # For every system: this node's address is 127.0.0.1, and all its servers listen there.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_AUTH_TOKEN": None,  # it would come before the file
        "RAY_ADDRESS": None,
        # A busy machine starts processes slowly: those still starting are not given up.
        "RAY_worker_register_timeout_seconds": "600",
        "RAY_agent_register_timeout_ms": "600000",
        # Trials run in processes of their own: those started in advance would end unused.
        "RAY_prestart_worker_first_driver": "0",
    }
    many, printed = ray_constants.ENABLE_RAY_CLUSTER, worker.print_to_stdstream
    try:
        with variables(values):
            ray_constants.ENABLE_RAY_CLUSTER = False
            # Otherwise pages of logs if a process dies; our own messages say what matters.
            worker.print_to_stdstream = lambda *_, **__: None
            reread()
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER, worker.print_to_stdstream = many, printed
        reread()
