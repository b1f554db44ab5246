"""Ends a process whose trial takes longer than it may.

A trial that hangs cannot be asked to stop, and Ray Tune's own forced clean-up waits ten
minutes. So a timer in the worker's process records the failure and ends the process; if the
interpreter itself is stuck, a timer below it does the latter alone.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable

_GRACE_SECONDS = 30.0
_EXIT_CODE = 70


class Watchdog:
    """Calls ``on_timeout`` after ``seconds`` and ends the process, unless it is disarmed."""

    def __init__(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        self._on_timeout = on_timeout
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()
        faulthandler.dump_traceback_later(
            seconds + _GRACE_SECONDS, exit=True, file=sys.__stderr__ or sys.stderr
        )

    def disarm(self) -> None:
        """The trial is over."""
        self._timer.cancel()
        faulthandler.cancel_dump_traceback_later()

    def _end(self) -> None:
        try:
            self._on_timeout()
        finally:
            os._exit(_EXIT_CODE)
