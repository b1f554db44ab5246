"""What belongs to a whole process, and so to whoever calls us: changed for a while only."""

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
    """Give back what libraries change in a process as they are imported or started.

    Ray and MLflow set environment variables, ``sys.path``, ``sys.excepthook``, the handlers of
    signals and the levels of loggers, and draw from Python's generator of random numbers. The
    loggers that come into being meanwhile are those of libraries: ``quiet`` gives them back.
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
    """Loggers by name, at these levels for a while. The library has set its own before."""
    loggers = {logging.getLogger(name): level for name, level in levels.items()}
    before = {logger: logger.level for logger in loggers}
    _set(loggers)
    try:
        yield
    finally:
        _set(before)


@contextmanager
def handlers_kept(*signals: signal.Signals) -> Iterator[None]:
    """Whatever handlers these signals are given meanwhile, those from before come back."""
    before = {number: signal.getsignal(number) for number in signals}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # no other can set one
            for number, handler in before.items():
                if handler is not None:  # one from outside Python, which cannot be given back
                    signal.signal(number, handler)


def _loggers() -> list[logging.Logger]:
    known = tuple(logging.root.manager.loggerDict.values())  # and places kept for some to come
    return [logging.root, *(one for one in known if isinstance(one, logging.Logger))]


def _set(levels: Mapping[logging.Logger, int]) -> None:
    for logger, level in levels.items():
        if logger.level != level:  # each change costs a walk through all loggers
            logger.setLevel(level)
