"""Which tests share a process, and one thread for torch in it: more would only get in the way."""

from __future__ import annotations

import pytest
import torch

pytest_plugins = ("tests.archives",)

torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses the same long sweep stays together when ``make test`` runs two at once."""
    for item in items:
        used = getattr(item, "fixturenames", ())
        shared = next((name for name in ("outages", "swept") if name in used), str(item.path))
        item.add_marker(pytest.mark.xdist_group(shared))
