"""File access that counts what an object store would be asked for."""

from __future__ import annotations

import threading
from collections import Counter

from sweeps.store.files import Files

WHO = {"MainThread": "loop", "recorder": "recorder"}


class CountedFiles:
    """Passes everything on, and counts requests by who asks: the loop, the recorder, a worker."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.root = files.root
        self.requests: Counter[tuple[str, str]] = Counter()

    def _count(self, *requests: str) -> None:
        who = WHO.get(threading.current_thread().name, "worker")
        for request in requests:
            self.requests[who, request] += 1

    def read(self, name: str) -> bytes | None:
        self._count("GET")
        return self._files.read(name)

    def read_all(self, directory: str) -> dict[str, bytes]:
        found = self._files.read_all(directory)
        self._count("LIST", *["GET"] * len(found))
        return found

    def names(self, directory: str) -> list[str]:
        self._count("LIST")
        return self._files.names(directory)

    def directories(self, directory: str) -> list[str]:
        self._count("LIST")
        return self._files.directories(directory)

    def write(self, name: str, content: bytes) -> None:
        self._count("PUT")
        self._files.write(name, content)

    def create(self, name: str, content: bytes) -> bool:
        self._count("GET", "PUT")  # asked first, as the remote file system does
        return self._files.create(name, content)

    def delete(self, name: str) -> None:
        self._count("DELETE")
        self._files.delete(name)

    def delete_tree(self, directory: str) -> None:
        self._count("LIST", "DELETE")
        self._files.delete_tree(directory)

    def move(self, source: str, target: str) -> None:
        self._count("LIST", "COPY", "DELETE")
        self._files.move(source, target)
