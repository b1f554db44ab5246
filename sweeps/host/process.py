"""Process-wide state, which belongs to the caller: changed only temporarily."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def left_as_found() -> Iterator[None]:
    """Restore what libraries change in a process as they are imported or started.

    Ray and MLflow set environment variables, ``sys.path``, ``sys.excepthook``, signal handlers
    and logger levels, and draw from Python's random number generator. Loggers created in the
    meantime belong to libraries: ``quiet`` restores them.
    """
    environment, path, hook = dict(os.environ), list(sys.path), sys.excepthook
    levels, drawn = {logger: logger.level for logger in _loggers()}, random.getstate()
    try:
        with handlers_kept(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            yield
    finally:
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        sys.path[:], sys.excepthook = path, hook
        _set(levels)
        random.setstate(drawn)


@contextmanager
def quiet(levels: Mapping[str, int]) -> Iterator[None]:
    """Temporarily set loggers, by name, to these levels, after the library has set its own."""
    loggers = {logging.getLogger(name): level for name, level in levels.items()}
    before = {logger: logger.level for logger in loggers}
    _set(loggers)
    try:
        yield
    finally:
        _set(before)


@contextmanager
def handlers_kept(*signals: signal.Signals) -> Iterator[None]:
    """Restore the handlers of these signals at the end."""
    before = {number: signal.getsignal(number) for number in signals}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # no other thread can set one
            for number, handler in before.items():
                if handler is not None:  # a handler from outside Python cannot be restored
                    signal.signal(number, handler)


def _loggers() -> list[logging.Logger]:
    known = tuple(logging.root.manager.loggerDict.values())  # including placeholders
    return [logging.root, *(one for one in known if isinstance(one, logging.Logger))]


def _set(levels: Mapping[logging.Logger, int]) -> None:
    for logger, level in levels.items():
        if logger.level != level:  # each change walks through all loggers
            logger.setLevel(level)
