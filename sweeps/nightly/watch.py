"""Check that nights arrive: silence must not pass for good news."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from sweeps.nightly.archive.nights import Nights, NightState

WITHIN_SECONDS = 26 * 3600.0
"""A day, plus two hours for a night that starts late or takes longer."""


class Watched(NamedTuple):
    """Whether a night ended or started within the time allowed; ``words`` describe it."""

    arrived: bool
    night: str
    words: str


def watch(nights: Nights, within: float = WITHIN_SECONDS) -> Watched:
    """Look for a night of the suite that ended at most ``within`` seconds ago.

    A running night counts if it started within that time. Nothing is written.
    """
    now = datetime.datetime.now(datetime.UTC)
    states = [state for night in nights.dates() if (state := nights.state(night)) is not None]
    seen = [(moment, state) for state in states if (moment := _last_sign(state)) is not None]
    hours = f"{within / 3600:g} h"
    if not seen:
        return Watched(False, "", f"{nights.directory}: no night of {nights.suite} found")
    moment, last = max(seen, key=lambda each: each[0])
    ago = (now - moment).total_seconds()
    verb = "has been running since" if last.status == "running" else "ended"
    night = f"the night of {last.night} {verb} {moment:%Y-%m-%d %H:%M} UTC ({_status(last)})"
    if ago <= within:
        return Watched(True, last.night, night)
    return Watched(False, last.night, f"no night of {nights.suite} in the last {hours}: {night}")


def _last_sign(state: NightState) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(state.ended or state.began)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def _status(state: NightState) -> str:
    return ", ".join(filter(None, (state.status, state.verdict)))
