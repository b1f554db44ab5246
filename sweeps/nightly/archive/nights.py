"""The directory of a suite's nights, and the recorded state of each night.

::

    NIGHTS/SUITE/2026-11-16/runs/          the store of the night's sweeps; nothing is shared
                            night.json     status, identity, times
                            results.parquet, verdict.json, report.html, report.md
    NIGHTS/SUITE/baseline.json, baseline.parquet, history.parquet, mlflow.db, log/

Old nights may be deleted: baseline and history are copies. All these files share one format;
if another version of calsweep wrote some of them, ``Nights.check_format`` refuses the directory.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, ValidationError

from sweeps.errors import UserError
from sweeps.store.files import write_atomically
from sweeps.store.format import refusal

NIGHTS_FORMAT = 3
"""Format of a suite's files; increase it when old and new results can no longer be compared."""
FORMAT_ENTRY = b"calsweep.format"
"""Its entry in the metadata of a Parquet file."""
BASELINE_FILE, HISTORY_FILE, STATE_FILE = "baseline.json", "history.parquet", "night.json"
RUNS = "runs"
ROOT, DEFAULT = "nights", "nightly"
"""The default of ``--nights``, and the suite that runs when none is named."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
Status = Literal["running", "complete", "unfinished", "failed"]
KILLED = "its process ended before the night did"


class NightState(BaseModel):
    """The content of ``night.json``.

    ``status``: a night is ``complete`` if every trial of every sweep has its result, ``failed``
    if it ended without some of them, ``unfinished`` if it did not reach its end. ``given`` is
    the suite as given to the command, empty for the default one. ``ends_by`` is when a running
    night will have ended, one way or another; empty without a time limit. ``verdict`` is the
    overall one, empty while there is none.
    """

    model_config = ConfigDict(frozen=True)

    format: int = NIGHTS_FORMAT
    suite: str
    given: str = ""
    night: str
    status: Status = "running"
    reason: str = ""
    began: str = ""
    ended: str = ""
    ends_by: str = ""
    identity: dict[str, str] = {}
    digest: str = ""
    verdict: str = ""


class Day(NamedTuple):
    """One day of a suite: its night's status and verdict, or ``missed``."""

    night: str
    status: str
    verdict: str = ""
    reason: str = ""


class Nights:
    """The directory of a suite's nights. Writing raises ``StoreError``.

    ``given`` is the suite as given to the command: a file, the name of a bundled suite or,
    for the default, nothing. It is also empty where only the suite's name is known.
    """

    def __init__(self, root: Path, suite: str, given: str = "") -> None:
        self.suite = suite
        self.given = given
        self.directory = root / suite
        self._root = root

    def check_format(self) -> None:
        """Raise ``StoreError`` naming a file that another version of calsweep wrote here.

        This version cannot use such a file; but ignoring it would make tonight the first night,
        and its results, whatever they are, the baseline.
        """
        for path, found in self._formats():
            if found != NIGHTS_FORMAT:
                suite = shlex.quote(self.given or self.suite)
                remedy = (
                    f"start over in another directory: calsweep nightly {suite} --nights DIR "
                    "(this one is left untouched)"
                )
                raise refusal(path, found, NIGHTS_FORMAT, remedy)

    def _formats(self) -> Iterator[tuple[Path, int]]:
        """The files that state their format, and the format; damaged files state none."""
        for path in (
            self.directory / BASELINE_FILE,
            *(self.place(n) / STATE_FILE for n in self.dates()),
        ):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                yield path, int(json.loads(path.read_bytes())["format"])
        history = self.directory / HISTORY_FILE
        with contextlib.suppress(OSError, ValueError):  # pyarrow's own errors are among them
            # The first format had no such entry.
            yield history, int((pq.read_schema(history).metadata or {}).get(FORMAT_ENTRY, 1))

    def finish(self, night: str) -> str:
        """The command that runs or resumes a night of this suite."""
        state = self.state(night)
        given = self.given or ("" if state is None else state.given)
        return self._command("nightly", given, "--night", night)

    def accept(self, night: str | None = None) -> str:
        """The command that makes a night the baseline, by default the last complete one."""
        chosen = () if night is None else ("--night", night)
        return f"{self._command('baseline accept', self._named, *chosen)} --reason '…'"

    @property
    def _named(self) -> str:
        return "" if self.suite == DEFAULT else self.suite

    def _command(self, verb: str, suite: str, *options: str) -> str:
        root = () if self._root == Path(ROOT) else ("--nights", str(self._root))
        words = (*([suite] if suite else []), *options, *root)
        return " ".join([f"calsweep {verb}", *map(shlex.quote, words)])

    def place(self, night: str) -> Path:
        """The directory of one night."""
        return self.directory / night

    def dates(self) -> list[str]:
        """The nights that have a directory, in order."""
        if not self.directory.is_dir():
            return []
        found = [path.name for path in self.directory.iterdir() if path.is_dir()]
        return sorted(name for name in found if _DATE.fullmatch(name))

    def state(self, night: str) -> NightState | None:
        """The recorded state of a night, or None if there is none that can be read."""
        try:
            return NightState.model_validate_json((self.place(night) / STATE_FILE).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, night: str, name: str, content: bytes) -> None:
        """Write one of a night's files atomically."""
        write_atomically(self.place(night) / name, content)

    def write_state(self, state: NightState) -> None:
        """Replace the recorded state of a night."""
        self.write(state.night, STATE_FILE, state.model_dump_json(indent=1).encode() + b"\n")

    def mark_unfinished(self, tonight: str) -> list[str]:
        """Mark other nights still recorded as running; the caller must hold the suite's lock."""
        marked = []
        for night in self.dates():
            state = self.state(night)
            if night != tonight and state is not None and state.status == "running":
                left = {"status": "unfinished", "reason": KILLED, "verdict": "incomplete"}
                self.write_state(state.model_copy(update=left))
                marked.append(night)
        return marked

    def days(self, until: str, also: Sequence[str] = ()) -> list[Day]:
        """Every day from the first night to ``until``; ``also`` names nights of the history."""
        there = {night for night in (*self.dates(), *also) if night <= until}
        if not there:
            return []
        return [self._day(night, night in also) for night in _days(min(there), until)]

    def _day(self, night: str, known: bool) -> Day:
        state = self.state(night)
        if state is not None:
            return Day(night, state.status, state.verdict, state.reason)
        if known:
            return Day(night, "complete")
        return Day(night, "unfinished" if self.place(night).is_dir() else "missed")


def checked_night(text: str | None) -> str:
    """The night as a checked date such as 2026-11-16, by default today.

    Raises ``UserError`` for text that is not a date or for a date in the future.
    """
    today = datetime.date.today()
    if text is None:
        return today.isoformat()
    try:
        night = datetime.date.fromisoformat(text)
        if not _DATE.fullmatch(text):
            raise ValueError
    except ValueError:
        raise UserError(f"--night: found {text!r}; write a date such as {today}") from None
    if night > today:
        raise UserError(f"--night: found {text}, which is in the future; today is {today}")
    return text


def now(later: float = 0.0) -> str:
    """The time, in UTC, to the second, or that of so many seconds later."""
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=later)
    return moment.isoformat(timespec="seconds")


def _days(first: str, last: str) -> list[str]:
    start, end = map(datetime.date.fromisoformat, (first, last))
    count = (end - start).days + 1
    return [(start + datetime.timedelta(days=day)).isoformat() for day in range(count)]
