"""A process from which the workers of a local sweep are forked.

A worker imports torch, Ray Tune and the learners before it can train, seconds of a core each
time. The template is forked from the driver, which has imported most of that already, imports
the rest once, and becomes a worker as often as Ray asks for one (``launch_worker.py``).

It is forked before the driver has threads, connections or locks of its own, and only where
nothing of the driver can disturb a worker; otherwise Ray starts processes as it always does.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from sweeps.host.stages import THIS_PROCESS
from sweeps.ray_backend.launch_worker import ANSWER, SOCKET
from sweeps.spec import LoadedSpec
from sweeps.spec.schema import Spec

_PR_SET_PDEATHSIG = 1


class Template:
    """The driver's handle of the template, which sleeps until Ray starts."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self._pid = pid
        self._control = control

    def serve(self, workspace: Path) -> dict[str, str]:
        """Wake it, with this environment; returns the variables by which workers find it."""
        where = {SOCKET: str(workspace / "fork")}
        order = {"workspace": str(workspace), "environment": os.environ | where}
        with suppress(OSError):  # it is gone: Ray starts workers without it
            self._control.sendall(json.dumps(order).encode() + b"\n")
        return where

    def close(self) -> None:
        """End it. Workers forked from it end with Ray."""
        self._control.close()
        with suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


@contextmanager
def template(loaded: LoadedSpec) -> Iterator[Template | None]:
    """A template for as long as the context lasts; None if forking would not be safe."""
    if not _is_safe(loaded):
        yield None
        return
    ours, theirs = socket.socketpair()
    driver = os.getpid()
    pid = os.fork()
    if pid == 0:
        _Server(theirs.detach(), driver).run()
    theirs.close()
    with closing(Template(pid, ours)) as made:
        yield made


def _is_safe(loaded: LoadedSpec) -> bool:
    """Whether a fork of this process can train.

    Other threads may hold locks that a fork would wait for. Ray and CUDA do not survive a fork
    after they were used, nor do torch's threads.
    """
    spec = loaded.spec
    return (
        sys.platform == "linux"
        and threading.active_count() == 1
        and "ray" not in sys.modules
        and spec.resources.trains_on == "cpu"
        and single_threaded(spec)
    )


def single_threaded(spec: Spec) -> bool:
    """Whether no row trains with several threads: those of a fork would wait for each other."""
    return all(spec.row_training(row).threads == 1 for row in spec.methods)


class _Server:
    """The template itself."""

    def __init__(self, control: int, driver: int) -> None:
        self._control = control
        self._driver = driver

    def run(self) -> NoReturn:
        """Wait for the order, then fork a worker for every request, until killed."""
        try:
            self._become_a_process_of_its_own()
            with socket.socket(fileno=self._control) as control, control.makefile() as orders:
                order = json.loads(orders.readline() or "{}")
            if order:
                self._serve(Path(order["workspace"]), order["environment"])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # nothing of the driver's stack may go on here

    def _become_a_process_of_its_own(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._driver:  # it died before the line above
            os._exit(1)
        os.setsid()  # Ctrl-C in the terminal is for the driver
        atexit._clear()
        THIS_PROCESS.take()  # the driver counts these seconds
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Ray waits for the workers, not this process
        self._keep_only_the_control()

    def _keep_only_the_control(self) -> None:
        """Close the driver's files: its locks and pipes must end with the driver."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        # The driver may have replaced these, as doctest does; Ray asks them for their files.
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, closefd=False)  # noqa: SIM115  (as long as the process lives)
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        kept = os.dup2(self._control, 3)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        self._control = kept

    def _serve(self, workspace: Path, environment: dict[str, str]) -> None:
        _set_environment(environment)
        # Errors go where Ray keeps its logs; an open file there marks this process as the driver's.
        log = os.open(workspace / "template.log", os.O_CREAT | os.O_WRONLY, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(environment[SOCKET])
            listener.listen(64)
            import sweeps.engine.cohort_run  # noqa: F401  (all of a worker that is not Ray's)

            while True:
                connection, _ = listener.accept()
                # The launcher did not wait for it, or was killed in the middle of its request.
                with connection, suppress(OSError, json.JSONDecodeError):
                    self._answer(connection, listener)

    def _answer(self, connection: socket.socket, listener: socket.socket) -> None:
        with connection.makefile("rb") as sent:
            request = json.loads(sent.read())
        # Ray reads the raylet's settings, the same for all workers, when it is imported.
        _set_environment(request["environment"])
        with _ids_of_the_system():
            import sweeps.ray_backend.trainable  # noqa: F401

        if os.fork() == 0:
            listener.close()
            _work(connection, request["arguments"], request["directory"])


@contextmanager
def _ids_of_the_system() -> Iterator[None]:
    """Let the operating system draw the ids of the actor classes that Ray defines when imported.

    Ray's own generator seeds itself when it is first used. If that is before a fork, all workers
    continue with the same numbers; two that start at the same moment then give their first
    objects the same id, upon which Ray ends one of them and starts no other in its place.
    """
    from ray import actor

    name = "ActorClassID"
    own: Any = getattr(actor, name)
    setattr(actor, name, SimpleNamespace(from_random=lambda: own(os.urandom(own.size()))))
    try:
        yield
    finally:
        setattr(actor, name, own)


def _set_environment(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _work(connection: socket.socket, arguments: list[str], directory: str) -> NoReturn:
    """Become the worker that Ray asked for."""
    import numpy as np

    code = 1
    try:
        # Only now: without an answer, as where no process can be forked, Ray starts one itself.
        connection.sendall(ANSWER)
        connection.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)  # the raylet ends the whole group of a worker that is gone
        os.chdir(directory)
        # As for the processes that Ray starts itself: if memory is short, workers end first.
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        np.random.seed()  # otherwise all workers would have the same
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
