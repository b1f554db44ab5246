"""Fault tests leave nothing running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.kit import stop_server, sweep_up
from tests.faults.outages import Outages


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    sweep_up()


@pytest.fixture(scope="session", autouse=True)
def outages(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outages | None]:
    """The long sweep, begun with the first fault test if anything asks for it."""
    if not any("away" in item.name for item in request.session.items):
        yield None
        return
    begun = Outages(tmp_path_factory.mktemp("outages"))
    begun.start()
    yield begun
    begun.join()
    if begun.server is not None:
        stop_server(begun.server)
