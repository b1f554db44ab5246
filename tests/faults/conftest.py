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


@pytest.fixture(scope="module", autouse=True)
def _begun_early(request: pytest.FixtureRequest) -> None:
    """Begin it before anything waits for it, if anything will.

    That is with the first fault test; but with the first of its own module where each worker of
    pytest-xdist runs some modules and none knows which.
    """
    asked = any("outages" in item.fixturenames for item in request.session.items)
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    if asked and (alone or request.module.__name__ == "tests.faults.test_tracking"):
        request.getfixturevalue("outages")
