"""Prefetching by threads, in order: the results are those of a plain ``map``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(
    function: Callable[[Item], Made], items: Iterable[Item], *, threads: int = 1, depth: int = 2
) -> Iterator[Made]:
    """``map(function, items)`` with up to ``depth`` results computed in advance.

    Reading files, copying arrays and decoding images let other threads run meanwhile. An
    exception of ``function`` is raised in place of its result.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="ahead") as pool:
        waiting: deque[Future[Made]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:  # the caller has stopped iterating: the rest is not needed
                future.cancel()
