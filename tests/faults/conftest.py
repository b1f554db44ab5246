"""Fault tests leave nothing running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.kit import sweep_up


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    sweep_up()
