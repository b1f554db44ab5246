"""Datasets: what there is to train on, how it is divided, and what is kept for testing.

One file per dataset or format. The first name that is taken from the package registers them
all. Importing the package does nothing, so that those who only read files need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration.data.registered import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """What ``calibration.data.registered`` has of this name."""
    if not name.startswith("_"):
        registered = import_module("calibration.data.registered")
        if name in registered.__all__:
            return getattr(registered, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
