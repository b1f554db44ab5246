"""Records → MLflow: one parent run per sweep, one child run per trial.

MLflow is a projection of the store. The recorder publishes from a thread of its own, away
from Tune's control loop: a slow or dead server slows no trial. What could not be published
waits in the store for the server's return, for the next run of the sweep, or for ``sync``.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import NamedTuple

from sweeps.analysis import Analysis
from sweeps.engine.cell import Entry
from sweeps.engine.plan import Plan
from sweeps.errors import UserError
from sweeps.host.secrets import masked, without_secrets
from sweeps.store import Store
from sweeps.tracking.mlflow.database_file import database_path
from sweeps.tracking.mlflow.drivers import with_driver
from sweeps.tracking.mlflow.publisher import Publisher
from sweeps.tracking.mlflow.settings import mlflow_settings

LIVE_SECONDS = 2.0
LIVE_REST = 9.0
"""After a live curve the recorder rests from live curves for so many times what it took."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 10.0
STUCK_SECONDS = 60.0
"""Beyond its patience a driver waits so long for a call that neither returns nor fails."""
_REFUSALS = 3
_LONGEST_REASON = 300


class TrackingError(UserError):
    """MLflow cannot be written; the message names the place, the cause and a remedy."""

    exit_code = 1


def default_uri(store: Store) -> str:
    """The sqlite database in the store's directory; of a remote store, in the current one."""
    directory = Path.cwd() if store.local is None else store.local
    return f"sqlite:///{(directory / 'mlflow.db').resolve()}"


@mlflow_settings()
def sync(
    uri: str,
    plan: Plan,
    store: Store,
    summary: str | None,
    analysis: Analysis | None = None,
) -> int:
    """Publish all that the store has of a sweep; how many trials had been missing.

    ``summary`` describes the sweep; None says that it was interrupted. The leaderboard of
    the ``analysis`` is shown with it, its selection tags the confirmed runs. Raises
    ``TrackingError`` when the server or the database cannot be written.
    """
    refused: list[Exception] = []
    uri = with_driver(uri)
    try:
        publisher = Publisher(uri, plan, store)
        for entry in list(plan.entries.values()):
            try:
                publisher.publish(entry)
            except Exception as error:  # one that is refused must not keep back the others
                refused.append(error)
                publisher = Publisher(uri, plan, store)  # raises if it is the server
        if summary is None:
            publisher.interrupt()
        else:
            publisher.publish_sweep(summary, analysis)
    except Exception as error:
        raise _unpublished(uri, error) from None
    if refused:
        raise _unpublished(uri, refused[0], f"{len(refused)} trials: ") from None
    return publisher.published


def _unpublished(uri: str, error: Exception, what: str = "") -> TrackingError:
    return TrackingError(
        f"cannot publish to {masked(uri)}: {what}{reason(error, uri)}; the records are safe: start "
        "the server, or name another with --tracking, and sync again"
    )


def reason(error: Exception, uri: str) -> str:
    """What went wrong with MLflow, in one line; of a web page nothing but that it came."""
    said, page, _ = f"{type(error).__name__}: {error}".partition("Response body: '<")
    line = " ".join(said.split())
    line = without_secrets(f"{line} It was a web page, not MLflow" if page else line, uri)
    # What was tried stands at the beginning, and at the end why it failed.
    half = _LONGEST_REASON // 2
    return line if len(line) <= _LONGEST_REASON else f"{line[:half]} … {line[-half:]}"


class _Close(NamedTuple):
    summary: str | None
    analysis: Analysis | None
    patience: float


class _Started(NamedTuple):
    entry: Entry


class Recorder:
    """Publishes from a thread of its own while the sweep runs.

    A server that is away is asked again after 1, 2, 4, … 10 s; the trials wait, by name
    only. A trial that is refused three times by a server that takes others is set aside.
    ``error`` says what went wrong last, ``backlog`` how many trials wait.
    """

    def __init__(self, uri: str, plan: Plan, store: Store, parent_run: str | None = None) -> None:
        self.uri = with_driver(uri)
        self.plan = plan
        self.store = store
        self.parent_run = parent_run
        self.error = ""
        self.experiment = ""
        self._events: queue.SimpleQueue[Entry | _Started | _Close] = queue.SimpleQueue()
        self._waiting: deque[Entry] = deque()
        self._running: dict[str, Entry] = {}
        self._live_due: dict[str, float] = {}
        self._live_after = 0.0
        self._refusals: Counter[str] = Counter()
        self._submitted = self._settled = self._set_aside = 0
        self._heard = time.monotonic()
        self._publisher: Publisher | None = None
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

    def started(self, entry: Entry) -> None:
        """Show this trial's curve while it grows."""
        self._events.put(_Started(entry))

    def submit(self, entry: Entry) -> None:
        """Publish this trial, whose outcome has landed, when its turn comes."""
        self._submitted += 1
        self._events.put(entry)

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
            self.error = self.error or f"{masked(self.uri)} did not answer in time"
        elif not self.backlog and not self._set_aside and self._failing_since is None:
            self.error = ""
        return self.backlog + self._set_aside

    def _wait_while_heard(self, seconds: float) -> None:
        """Wait for the thread's end, unless nothing is heard from a server for so many seconds."""
        if database_path(self.uri) is not None:  # a file answers or fails, however slowly
            self._thread.join()
            return
        while (left := self._heard + seconds - time.monotonic()) > 0:
            self._thread.join(left)
            if not self._thread.is_alive():
                return

    @mlflow_settings()
    def _work(self) -> None:
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
        if self._publisher is None or self._waiting:
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

    def _take(self, event: Entry | _Started | _Close) -> None:
        if isinstance(event, _Close):
            self._closing = event
        elif isinstance(event, _Started):
            self._running[event.entry.key] = event.entry
            self._live_due[event.entry.key] = time.monotonic() + LIVE_SECONDS
        else:
            self._forget(event.key)
            self._waiting.append(event)

    def _forget(self, key: str) -> None:
        self._running.pop(key, None)
        self._live_due.pop(key, None)

    def _publish_next(self) -> bool:
        """Publish the first that waits; False if the server is away."""
        publisher = self._connected()
        if publisher is None:
            return False
        if not self._waiting:
            return True
        entry = self._waiting[0]
        try:
            publisher.publish(entry)
        except Exception as error:  # whatever tracking does, the sweep goes on
            self._failed(error)
            if self._connected() is None:
                return False
            self._waiting.popleft()
            self._refusals[entry.key] += 1
            if self._refusals[entry.key] >= _REFUSALS:
                self._set_aside += 1
                return True
            if not self._waiting:
                self._stay_away()
            self._waiting.append(entry)
        else:
            self._waiting.popleft()
            self._settled += 1
            self._succeeded()
        return True

    def _publish_live(self) -> None:
        """Publish one running trial's curve, if one is due."""
        now = time.monotonic()
        if self._publisher is None or not self._live_due or now < self._live_after:
            return
        key = min(self._live_due, key=lambda k: self._live_due[k])
        if self._live_due[key] > now:
            return
        try:
            self._publisher.publish_live(self._running[key])
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
                # A publisher made anew has taken up the sweep's run again.
                ended = ended and self._publisher is not None and not self._publisher.open
            else:
                ended = self._end(closing)

    def _end(self, closing: _Close) -> bool:
        publisher = self._connected()
        if publisher is None:
            return False
        try:
            if closing.summary is None:
                publisher.interrupt()
            else:
                publisher.publish_sweep(closing.summary, closing.analysis)
        except Exception as error:  # as above
            self._failed(error)
            self._stay_away()
            return False
        self._succeeded()
        return True

    def _connected(self) -> Publisher | None:
        """The publisher, made anew after a failure; None while the server is away.

        A new one looks again at what is there: a request that failed may have arrived.
        """
        if self._publisher is None:
            try:
                self._publisher = Publisher(
                    self.uri, self.plan, self.store, self.parent_run, self._answered
                )
            except Exception as error:  # as above
                self._failed(error)
                self._stay_away()
            else:
                self.experiment = self._publisher.experiment
                self._wait, self._away_until = FIRST_WAIT, 0.0
        return self._publisher

    def _failed(self, error: Exception) -> None:
        self.error = reason(error, self.uri)
        self._failing_since = self._failing_since or time.monotonic()
        self._publisher = None

    def _stay_away(self) -> None:
        self._away_until = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _answered(self) -> None:
        self._heard = time.monotonic()

    def _succeeded(self) -> None:
        self._answered()
        self._failing_since = None
        self._wait = FIRST_WAIT
