"""Datasets: training data, how it is split, and what is held back for testing.

One file per dataset or format. The first access to a name of the package registers them all;
importing the package alone does nothing, so that code which only reads files needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration.data.registered import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """The attribute of this name in ``calibration.data.registered``."""
    if not name.startswith("_"):
        registered = import_module("calibration.data.registered")
        if name in registered.__all__:
            return getattr(registered, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
