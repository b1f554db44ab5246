"""The protocol of a tracking backend: the few methods that a sweep needs.

MLflow's is in ``sweeps.tracking.mlflow``. The recorder and ``sync`` use only this protocol: they
handle order, retries and backlog, and a backend writes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from sweeps.analysis import Analysis
from sweeps.engine.cell import PlannedTrial
from sweeps.errors import UserError


class TrackingError(UserError):
    """The backend cannot be written; the message names the place, the cause and a remedy."""

    exit_code = 1


class TrackingSession(Protocol):
    """A connection for one thread. Every method may raise anything: then a new one is made.

    What is published is a projection of the store, and may be published more than once: after a
    lost answer, by the next run of the sweep, by ``sync``. Publishing a trial again changes
    nothing.
    """

    published: int
    """How many trials this session has updated."""
    open: bool
    """Whether the sweep is shown as running."""

    def publish(self, trial: PlannedTrial) -> None:
        """Show the outcome of a trial; nothing if it has none."""

    def publish_live(self, trial: PlannedTrial) -> None:
        """Show a running trial's curve up to its last checkpoint."""

    def publish_sweep(self, summary: str, analysis: Analysis | None = None) -> None:
        """The sweep has ended: show its results; ``summary`` is Markdown."""

    def interrupt(self) -> None:
        """The sweep was interrupted: mark its running trials as killed."""


class TrackingBackend(Protocol):
    """Where a sweep is shown."""

    place: str
    """Its address for display, without secrets."""
    answers_always: bool
    """Whether it always answers or fails, like a file, however slowly; a server may do neither."""

    def settings(self) -> AbstractContextManager[object]:
        """In force while sessions are used."""

    def connect(self, answered: Callable[[], None]) -> TrackingSession:
        """A session that knows the existing runs. Calls ``answered`` at every answer."""

    def reason(self, error: Exception) -> str:
        """What went wrong, in one line without secrets."""
