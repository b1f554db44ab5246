"""Check that nights arrive: silence must not pass for good news."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from sweeps.nightly.archive.nights import Nights, NightState
from sweeps.nightly.run.unattended import is_running

WITHIN_SECONDS = 26 * 3600.0
"""A day, plus two hours for a night that starts late or takes longer."""


class Watched(NamedTuple):
    """Whether a night ended or started within the time allowed; ``words`` describe it."""

    arrived: bool
    words: str


def watch(nights: Nights, within: float = WITHIN_SECONDS) -> Watched:
    """Look for a night of the suite that ended at most ``within`` seconds ago.

    A running night counts if it started within that time and its process still exists: a night
    that was killed has reported nothing. Nothing is written.
    """
    now = datetime.datetime.now(datetime.UTC)
    states = [state for night in nights.dates() if (state := nights.state(night)) is not None]
    seen = [(moment, state) for state in states if (moment := _last_sign(state)) is not None]
    if not seen:
        return Watched(False, f"{nights.directory}: no night of {nights.suite} found")
    moment, last = max(seen, key=lambda each: each[0])
    night, when = f"the night of {last.night}", f"{moment:%Y-%m-%d %H:%M} UTC"
    if not last.ended and not _runs(nights, last, now):
        return Watched(False, f"{night} began {when} and was killed")
    verb = "ended" if last.ended else "has been running since"
    words = f"{night} {verb} {when} ({', '.join(filter(None, (last.status, last.verdict)))})"
    if (now - moment).total_seconds() <= within:
        return Watched(True, words)
    return Watched(False, f"no night of {nights.suite} in the last {within / 3600:g} h: {words}")


def _runs(nights: Nights, state: NightState, now: datetime.datetime) -> bool:
    """Whether a night that has not ended may still be running."""
    ends_by = _moment(state.ends_by)
    late = ends_by is not None and now > ends_by
    return state.status == "running" and not late and is_running(nights.directory)


def _last_sign(state: NightState) -> datetime.datetime | None:
    return _moment(state.ended or state.began)


def _moment(text: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
