"""Watches what a long call depends on, and ends the call when that is gone.

Ray's own waits do not end when the machine's raylet dies: the call then waits for ever, or the
process is aborted natively a minute later. So a thread asks every second, and raises in the
thread that waits.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sweeps.host.console import complain

LOOK_SECONDS = 1.0
AGAIN_SECONDS = 5.0
_PATIENCE_SECONDS = 30.0
"""A call that does not come back to Python by then never will."""
_EXIT_CODE = 1

Check = Callable[[], None]


class _Ended(BaseException):
    """Raised in the watched thread; not an ``Exception``, so that none on the way catches it."""


class Watch:
    """Calls the checks every second while the context lasts.

    What the first one to fail raises is raised from the context, out of whatever Python code
    runs in it, and instead of any error that it raises itself. Code that does not return to
    Python within half a minute cannot be ended in this way: then the reason is printed and the
    process ends.
    """

    def __init__(self, *checks: Check) -> None:
        self._checks = checks
        self._reason: Exception | None = None
        self._over = threading.Event()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._watched = 0

    def __enter__(self) -> Self:
        self._watched = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with self._guard:
                self._over.set()
                _raise_in(self._watched, None)  # cancel one that is still pending
        except _Ended:
            self._over.set()
        if kind is None or not (issubclass(kind, Exception) or kind is _Ended):
            return
        for check in self._checks if self._reason is None else ():
            check()  # what was raised may be only the first sign
        if self._reason is not None:
            raise self._reason from None

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                for check in self._checks:
                    check()
            except Exception as error:  # whatever a check raises is the reason
                self._reason = error
                self._end(error)
                return

    def _end(self, reason: Exception) -> None:
        for _ in range(round(_PATIENCE_SECONDS / AGAIN_SECONDS)):
            with self._guard:
                if self._over.is_set():
                    return
                _raise_in(self._watched, _Ended)
            if self._over.wait(AGAIN_SECONDS):
                return
        complain(str(reason))
        os._exit(_EXIT_CODE)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Let a thread raise an exception at its next step in Python; None cancels it."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if kind is None else ctypes.py_object(kind)
    )
