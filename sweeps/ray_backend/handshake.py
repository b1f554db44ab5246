"""Whether a worker on another machine works on the same sweep as its driver.

A path that is not shared looks the same everywhere but is a different disk on every machine, and a
different version of the code trains something else. Both would lose work silently.
"""

from __future__ import annotations

import hashlib
import sys
import time
import uuid
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import torch

from sweeps.host.nvidia import driver_version
from sweeps.store import Store, StoreError

_MARK_FILE = "driver.mark"
"""In the sweep's directory: the mark of the driver that runs it now."""
_PATIENCE_SECONDS = 15.0
"""A network file system may show a new file only after a while."""


class UnfitNodeError(StoreError):
    """A node cannot work on the sweep; the message says which, why, and what to do."""


class Handshake(NamedTuple):
    """What a driver and its workers must have in common."""

    sweep: str
    mark: str
    versions: tuple[str, ...]

    @classmethod
    def begin(cls, store: Store, sweep: str) -> Handshake:
        """Leave the driver's mark in the store."""
        mark = uuid.uuid4().hex
        store.write_file(sweep, _MARK_FILE, mark.encode())
        return cls(sweep, mark, versions())

    def complete(self, store: Store, node: str) -> None:
        """Look for the mark in a worker. Raises ``UnfitNodeError`` naming what differs there."""
        if versions() != self.versions:
            raise UnfitNodeError(
                f"node {node} has {', '.join(versions())}, but the driver has "
                f"{', '.join(self.versions)}; install the same versions on every node"
            )
        if not _seen(self.mark, self.sweep, str(store.root)):
            raise UnfitNodeError(
                f"node {node} does not see the store {store.root} of the driver; name one that all "
                "nodes share: a network file system's path, or a URI such as s3://bucket/runs"
            )


def check_device(device: str, node: str) -> None:
    """Raise ``UnfitNodeError`` if a node lacks the device of its trials, a part of their keys."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UnfitNodeError(
            f"node {node} has no GPU that torch can use, but resources.gpu requests one: it has "
            f"{_cuda(str(torch.__version__), torch.version.cuda, driver_version())}; write "
            "resources: {gpu: 0} to train on CPUs"
        )


def _cuda(build: str, cuda: str | None, driver: str) -> str:
    """Which parts of CUDA a node has, and how to get the others."""
    loaded = f"NVIDIA's driver {driver}" if driver else "no NVIDIA driver"
    if cuda is None:
        return f"torch {build}, built without CUDA, and {loaded}; install a CUDA build of torch"
    remedy = (
        f"check whether nvidia-smi lists the GPU, and update the driver to one for CUDA {cuda} or "
        "install a torch built for an older CUDA"
        if driver
        else "install the driver"
    )
    return f"torch {build}, built with CUDA {cuda}, and {loaded}; {remedy}"


@lru_cache(maxsize=1)
def versions() -> tuple[str, ...]:
    """The versions that decide a trial's result."""
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    sources = hashlib.sha256()
    for package in ("calibration", "sweeps"):
        root = Path(__file__).parents[2] / package
        for path in sorted(root.rglob("*.py")):
            sources.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    # "2.13.0+cu126" and "2.13.0+cpu" are the same release for different machines.
    installed = {name: version(name).partition("+")[0] for name in ("calsweep", "torch")}
    numbers = (f"{name} {number}" for name, number in installed.items())
    return (python, *numbers, f"source files {sources.hexdigest()[:12]}")


@lru_cache(maxsize=8)
def _seen(mark: str, sweep: str, root: str) -> bool:
    store = Store(root)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        if store.read_file(sweep, _MARK_FILE) == mark.encode():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
