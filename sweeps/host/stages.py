"""Where the time of a sweep goes: seconds by stage, of this process and of its workers."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Stages:
    """Seconds by name. A stage inside another one counts for itself, and not for the outer one."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._inner = threading.local()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the block or, as a decorator, of a function."""
        outer, self._inner.seconds = getattr(self._inner, "seconds", 0.0), 0.0
        began = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - began
            self.add({name: taken - self._inner.seconds})
            self._inner.seconds = outer + taken

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add seconds that were measured elsewhere."""
        with self._lock:
            for name, taken in seconds.items():
                self._seconds[name] += taken

    def take(self) -> dict[str, float]:
        """The seconds since the last call."""
        with self._lock:
            taken = dict(self._seconds)
            self._seconds.clear()
        return taken


THIS_PROCESS = Stages()
"""The stages of this process."""
WORKERS = Stages()
"""The stages that workers have reported to this process, added up."""
stage = THIS_PROCESS.stage
