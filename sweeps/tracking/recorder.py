"""Records → tracking, as a sweep goes on.

What is tracked is a projection of the store. The recorder publishes from a thread of its own, away
from Tune's control loop: a slow or dead server slows no trial. What could not be published
waits in the store for the server's return, for the next run of the sweep, or for ``sync``.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

from calibration.text import count
from sweeps.analysis import Analysis
from sweeps.engine.cell import PlannedTrial
from sweeps.tracking.backend import TrackingBackend, TrackingError, TrackingSession

LIVE_SECONDS = 2.0
LIVE_REST = 9.0
"""After a live curve the recorder rests from live curves for so many times what it took."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 10.0
STUCK_SECONDS = 60.0
"""Beyond its patience a driver waits so long for a call that neither returns nor fails."""
_REFUSALS = 3


def sync(
    backend: TrackingBackend,
    trials: Iterable[PlannedTrial],
    summary: str | None,
    analysis: Analysis | None = None,
) -> int:
    """Publish all that there is of a sweep; how many trials had been missing.

    ``summary`` describes the sweep; None says that it was interrupted. The leaderboard of
    the ``analysis`` is shown with it, its selection marks the confirmed trials. Raises
    ``TrackingError`` when the backend cannot be written.
    """
    refused: list[Exception] = []
    with backend.settings():
        try:
            session = backend.connect(_nobody)
            for trial in trials:
                try:
                    session.publish(trial)
                except Exception as error:  # one that is refused must not keep back the others
                    refused.append(error)
                    session = backend.connect(_nobody)  # raises if it is the server
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
    """Nobody waits for answers."""


def _unpublished(backend: TrackingBackend, error: Exception, what: str = "") -> TrackingError:
    return TrackingError(
        f"cannot publish to {backend.place}: {what}{backend.reason(error)}; the records are safe: "
        "start the server, or name another with --tracking, and sync again"
    )


class _Close(NamedTuple):
    summary: str | None
    analysis: Analysis | None
    patience: float


class _Started(NamedTuple):
    trial: PlannedTrial


class Recorder:
    """Publishes from a thread of its own while the sweep runs.

    A server that is away is asked again after 1, 2, 4, … 10 s; the trials wait, by name
    only. A trial that is refused three times by a server that takes others is set aside.
    ``error`` says what went wrong last, ``backlog`` how many trials wait.
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
        """How many trials wait to be published."""
        return self._submitted - self._settled - self._set_aside

    def started(self, trial: PlannedTrial) -> None:
        """Show this trial's curve while it grows."""
        self._events.put(_Started(trial))

    def submit(self, trial: PlannedTrial) -> None:
        """Publish this trial, whose outcome has landed, when its turn comes."""
        self._submitted += 1
        self._events.put(trial)

    def close(
        self,
        summary: str | None,
        analysis: Analysis | None = None,
        *,
        patience: float = 20.0,
    ) -> int:
        """Publish what is left and the sweep's own run; how many trials could not be.

        The sweep's run says what ``summary`` and ``analysis`` do. Gives up after
        ``patience`` seconds in which nothing works, or a minute later if a call does not
        return. Without a ``summary`` the sweep was interrupted: its runs are marked as killed,
        and there are ``patience`` seconds for all that is left.
        """
        self._heard = time.monotonic()
        self._events.put(_Close(summary, analysis, patience))
        if summary is None:
            self._thread.join(patience + FIRST_WAIT)
        else:
            self._wait_while_heard(patience + STUCK_SECONDS)
        if self._thread.is_alive():
            self.error = self.error or f"{self.backend.place} did not answer in time"
        elif not self.backlog and not self._set_aside and self._failing_since is None:
            self.error = ""
        return self.backlog + self._set_aside

    def _wait_while_heard(self, seconds: float) -> None:
        """Wait for the thread's end, unless nothing is heard from a server for so many seconds."""
        if self.backend.answers_always:
            self._thread.join()
            return
        while (left := self._heard + seconds - time.monotonic()) > 0:
            self._thread.join(left)
            if not self._thread.is_alive():
                return

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
        """Seconds until there is something to do unless something happens; None: for ever."""
        now = time.monotonic()
        if self._session is None or self._waiting:
            return max(0.0, self._away_until - now)
        if not self._live_due:
            return None
        return max(0.0, min(self._live_due.values()) - now, self._live_after - now)

    def _receive(self, timeout: float | None) -> None:
        """Take in what has happened, waiting for it no longer than ``timeout``."""
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
        """Publish the first that waits; False if the server is away."""
        session = self._connected()
        if session is None:
            return False
        if not self._waiting:
            return True
        trial = self._waiting[0]
        try:
            session.publish(trial)
        except Exception as error:  # whatever tracking does, the sweep goes on
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
        """Until everything is published, or nothing has worked for as long as one has patience."""
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
                # A session made anew has taken up the sweep's run again.
                ended = ended and self._session is not None and not self._session.open
            else:
                ended = self._end(closing)

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
        """The session, made anew after a failure; None while the server is away.

        A new one looks again at what is there: a request that failed may have arrived.
        """
        if self._session is None:
            try:
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
