"""Records → tracking, while a sweep runs.

What is tracked is a projection of the store. The recorder publishes from a separate thread, away
from Tune's control loop: a slow or dead server does not slow down any trial. What could not be
published stays in the store until the server is back, the sweep runs again, or ``sync``.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from calibration.text import count
from sweeps.analysis import Analysis
from sweeps.engine.cell import PlannedTrial
from sweeps.host.stages import stage
from sweeps.tracking.backend import TrackingBackend, TrackingError, TrackingSession

LIVE_SECONDS = 2.0
LIVE_REST = 9.0
"""After a live curve the recorder pauses live curves for this multiple of the time it took."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 10.0
STUCK_SECONDS = 60.0
"""Seconds beyond its patience that a driver waits for a call that does not return."""
FIRST_TOLD, TOLD_EVERY = 5.0, 30.0
"""Seconds of waiting at the end before the first message about it, and between later ones."""
_REFUSALS = 3


def sync(
    backend: TrackingBackend,
    trials: Iterable[PlannedTrial],
    summary: str | None,
    analysis: Analysis | None = None,
) -> int:
    """Publish everything of a sweep; returns how many trials had been missing.

    ``summary`` describes the sweep; None means that it was interrupted. The leaderboard of
    the ``analysis`` is shown with it, its selection marks the confirmed trials. Raises
    ``TrackingError`` if the backend cannot be written.
    """
    refused: list[Exception] = []
    with backend.settings():
        try:
            session = backend.connect(_nobody)
            for trial in trials:
                try:
                    session.publish(trial)
                except Exception as error:  # one refused trial must not block the others
                    refused.append(error)
                    session = backend.connect(_nobody)  # raises if the server is the cause
            if summary is None:
                session.interrupt()
            else:
                session.publish_sweep(summary, analysis)
        except Exception as error:
            raise _unpublished(backend, error) from None
    if refused:
        raise _unpublished(backend, refused[0], f"{count(len(refused), 'trial')}: ") from None
    return session.published


def _nobody() -> None:
    """No one waits for answers."""


def _unpublished(backend: TrackingBackend, error: Exception, what: str = "") -> TrackingError:
    return TrackingError(
        f"cannot publish to {backend.place}: {what}{backend.reason(error)}; the records are safe: "
        "start the server, or choose another with --tracking, and sync again"
    )


class _Close(NamedTuple):
    summary: str | None
    analysis: Analysis | None
    patience: float


class _Started(NamedTuple):
    trial: PlannedTrial


class Recorder:
    """Publishes from a separate thread while the sweep runs.

    An unavailable server is retried after 1, 2, 4, … 10 s; trials are queued by name only. A
    trial that is refused three times by a server that accepts others is set aside. ``error`` is
    the last error, ``backlog`` the number of queued trials.
    """

    def __init__(self, backend: TrackingBackend) -> None:
        self.backend = backend
        self.error = ""
        self._events: queue.SimpleQueue[PlannedTrial | _Started | _Close] = queue.SimpleQueue()
        self._waiting: deque[PlannedTrial] = deque()
        self._running: dict[str, PlannedTrial] = {}
        self._live_due: dict[str, float] = {}
        self._live_after = 0.0
        self._refusals: Counter[str] = Counter()
        self._submitted = self._settled = self._set_aside = 0
        self._heard = time.monotonic()
        self._session: TrackingSession | None = None
        self._wait = FIRST_WAIT
        self._away_until = 0.0
        self._failing_since: float | None = None
        self._closing: _Close | None = None
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """The number of trials waiting to be published."""
        return self._submitted - self._settled - self._set_aside

    def started(self, trial: PlannedTrial) -> None:
        """Show this trial's curve while it grows."""
        self._events.put(_Started(trial))

    def submit(self, trial: PlannedTrial) -> None:
        """Queue this trial, which has an outcome, for publishing."""
        self._submitted += 1
        self._events.put(trial)

    def close(
        self,
        summary: str | None,
        analysis: Analysis | None = None,
        *,
        patience: float = 20.0,
        tell: Callable[[str], None] = lambda words: None,
    ) -> int:
        """Publish the rest and the sweep's own run; returns how many trials could not be.

        The sweep's run shows ``summary`` and ``analysis``. Gives up after ``patience`` seconds
        without success, or a minute later if a call does not return. Without a ``summary`` the
        sweep was interrupted: its runs are marked as killed, and there are ``patience`` seconds
        for everything that is left. A slow server may take long: ``tell`` is given a line about
        it now and then.
        """
        self._heard = time.monotonic()
        self._events.put(_Close(summary, analysis, patience))
        if summary is None:
            self._thread.join(patience + FIRST_WAIT)
        else:
            self._wait_while_heard(patience + STUCK_SECONDS, tell)
        if self._thread.is_alive():
            self.error = self.error or f"{self.backend.place} did not answer in time"
        elif not self.backlog and not self._set_aside and self._failing_since is None:
            self.error = ""
        return self.backlog + self._set_aside

    def _wait_while_heard(self, seconds: float, tell: Callable[[str], None]) -> None:
        """Wait for the thread's end, unless the server is silent for this many seconds."""
        told_at = time.monotonic() + FIRST_TOLD
        while self._thread.is_alive():
            now = time.monotonic()
            if now >= told_at:
                tell(self._waited_for())
                told_at = now + TOLD_EVERY
            until = told_at
            if not self.backend.answers_always:
                until = min(until, self._heard + seconds)
                if until <= now:
                    return
            self._thread.join(until - now)

    def _waited_for(self) -> str:
        left = f"{count(self.backlog, 'trial')} and " if self.backlog else ""
        trouble = f" ({self.error})" if self._failing_since is not None else ""
        return (
            f"waiting for {self.backend.place}{trouble}: {left}the sweep's own run left to "
            "publish; interrupting loses nothing, the same command publishes them later"
        )

    def _work(self) -> None:
        with self.backend.settings():
            while self._closing is None:
                self._receive(self._pause())
                if time.monotonic() < self._away_until:
                    continue
                self._publish_next()
                self._publish_live()
            self._finish(self._closing)

    def _pause(self) -> float | None:
        """Seconds until the next action, if no event comes first; None: no action is due."""
        now = time.monotonic()
        if self._session is None or self._waiting:
            return max(0.0, self._away_until - now)
        if not self._live_due:
            return None
        return max(0.0, min(self._live_due.values()) - now, self._live_after - now)

    def _receive(self, timeout: float | None) -> None:
        """Take the next events, waiting for them no longer than ``timeout``."""
        try:
            event = self._events.get(timeout=timeout) if timeout != 0 else self._events.get_nowait()
            while True:
                self._take(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _take(self, event: PlannedTrial | _Started | _Close) -> None:
        if isinstance(event, _Close):
            self._closing = event
        elif isinstance(event, _Started):
            self._running[event.trial.key] = event.trial
            self._live_due[event.trial.key] = time.monotonic() + LIVE_SECONDS
        else:
            self._forget(event.key)
            self._waiting.append(event)

    def _forget(self, key: str) -> None:
        self._running.pop(key, None)
        self._live_due.pop(key, None)

    def _publish_next(self) -> bool:
        """Publish the first waiting trial; False if the server is unavailable."""
        session = self._connected()
        if session is None:
            return False
        if not self._waiting:
            return True
        trial = self._waiting[0]
        try:
            with stage("publish"):
                session.publish(trial)
        except Exception as error:  # the sweep continues, whatever tracking does
            self._failed(error)
            if self._connected() is None:
                return False
            self._waiting.popleft()
            self._refusals[trial.key] += 1
            if self._refusals[trial.key] >= _REFUSALS:
                self._set_aside += 1
                return True
            if not self._waiting:
                self._stay_away()
            self._waiting.append(trial)
        else:
            self._waiting.popleft()
            self._settled += 1
            self._succeeded()
        return True

    def _publish_live(self) -> None:
        """Publish one running trial's curve, if one is due."""
        now = time.monotonic()
        if self._session is None or not self._live_due or now < self._live_after:
            return
        key = min(self._live_due, key=lambda k: self._live_due[k])
        if self._live_due[key] > now:
            return
        try:
            with stage("publish"):
                self._session.publish_live(self._running[key])
        except Exception as error:  # as above; the curve comes with the record
            self._failed(error)
            if self._connected() is not None:
                self._forget(key)
                return
        done = time.monotonic()
        self._live_due[key] = done + LIVE_SECONDS
        self._live_after = done + LIVE_REST * (done - now)

    def _finish(self, closing: _Close) -> None:
        """Publish until everything is done, or nothing has worked for the time of patience."""
        began = time.monotonic()
        ended = False
        while not ended or self._waiting:
            now = time.monotonic()
            since = began if closing.summary is None else max(began, self._failing_since or now)
            if now - since >= closing.patience:
                return
            if now < self._away_until:
                time.sleep(min(self._away_until, since + closing.patience) - now)
            elif closing.summary is None and not ended:
                ended = self._end(closing)
            elif self._waiting:
                self._publish_next()
                # A new session has reopened the sweep's run.
                ended = ended and self._session is not None and not self._session.open
            else:
                ended = self._end(closing)

    @stage("publish")
    def _end(self, closing: _Close) -> bool:
        session = self._connected()
        if session is None:
            return False
        try:
            if closing.summary is None:
                session.interrupt()
            else:
                session.publish_sweep(closing.summary, closing.analysis)
        except Exception as error:  # as above
            self._failed(error)
            self._stay_away()
            return False
        self._succeeded()
        return True

    def _connected(self) -> TrackingSession | None:
        """The session, renewed after a failure; None while the server is unavailable.

        A new one looks up the runs again: a request that failed may have arrived.
        """
        if self._session is None:
            try:
                with stage("publish"):
                    self._session = self.backend.connect(self._answered)
            except Exception as error:  # as above
                self._failed(error)
                self._stay_away()
            else:
                self._wait, self._away_until = FIRST_WAIT, 0.0
        return self._session

    def _failed(self, error: Exception) -> None:
        self.error = self.backend.reason(error)
        self._failing_since = self._failing_since or time.monotonic()
        self._session = None

    def _stay_away(self) -> None:
        self._away_until = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _answered(self) -> None:
        self._heard = time.monotonic()

    def _succeeded(self) -> None:
        self._answered()
        self._failing_since = None
        self._wait = FIRST_WAIT
