"""Fault tests leave nothing running."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults.kit import stop_server, sweep_up
from tests.faults.outages import Outages


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    sweep_up()


@pytest.fixture(scope="session")
def outages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outages]:
    """The long sweep."""
    begun = Outages(tmp_path_factory.mktemp("outages"))
    begun.start()
    yield begun
    begun.join()
    if begun.server is not None:
        stop_server(begun.server)


@pytest.fixture(scope="session", autouse=True)
def _begun_early(request: pytest.FixtureRequest) -> None:
    """Begin it with the first fault test if anything asks for it, and if all run in here."""
    asked = any("away" in item.name for item in request.session.items)
    if asked and "PYTEST_XDIST_WORKER" not in os.environ:
        request.getfixturevalue("outages")
