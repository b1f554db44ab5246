"""Has a night arrived? For whoever would otherwise take silence for good news."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from sweeps.nightly.archive.nights import Nights, NightState

WITHIN_SECONDS = 26 * 3600.0
"""A day, and two hours for a night that begins late or takes longer."""


class Watched(NamedTuple):
    """Whether a night ended, or runs, within the time allowed; ``words`` say which."""

    arrived: bool
    night: str
    words: str


def watch(nights: Nights, within: float = WITHIN_SECONDS) -> Watched:
    """Look for a night of the suite that ended no more than ``within`` seconds ago.

    One that runs counts as long as it began within that time. Nothing is written.
    """
    now = datetime.datetime.now(datetime.UTC)
    states = [state for night in nights.dates() if (state := nights.state(night)) is not None]
    seen = [(moment, state) for state in states if (moment := _last_sign(state)) is not None]
    hours = f"{within / 3600:g} h"
    if not seen:
        return Watched(False, "", f"{nights.directory}: no night of {nights.suite} ever arrived")
    moment, last = max(seen, key=lambda each: each[0])
    ago = (now - moment).total_seconds()
    verb = "runs since" if last.status == "running" else "ended"
    said = f"the night of {last.night} {verb} {moment:%Y-%m-%d %H:%M} UTC ({_status(last)})"
    if ago <= within:
        return Watched(True, last.night, said)
    return Watched(False, last.night, f"no night of {nights.suite} arrived for {hours}: {said}")


def _last_sign(state: NightState) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(state.ended or state.began)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def _status(state: NightState) -> str:
    return ", ".join(filter(None, (state.status, state.verdict)))
