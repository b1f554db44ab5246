"""The accepted night that later nights are compared with: a copy, who accepted it and why."""

from __future__ import annotations

import getpass
import socket
from typing import NamedTuple

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from sweeps.errors import UserError
from sweeps.nightly.archive.nights import BASELINE_FILE, NIGHTS_FORMAT, Nights, NightState, now
from sweeps.nightly.archive.results import (
    RESULTS_FILE,
    cells,
    digest,
    parquet,
    reference_seconds,
)
from sweeps.store.files import write_atomically

COPY = "baseline.parquet"
FIRST = "the first complete night"


class Acceptance(BaseModel):
    """Which night was accepted, by whom, when and why."""

    model_config = ConfigDict(frozen=True)

    night: str
    digest: str
    accepted_at: str
    accepted_by: str
    reason: str


class BaselineFile(Acceptance):
    """The content of ``baseline.json``; ``earlier`` lists previous baselines, newest first."""

    format: int = NIGHTS_FORMAT
    suite: str
    identity: dict[str, str]
    earlier: list[Acceptance] = []


class AcceptedNight(NamedTuple):
    """The accepted night: its acceptance and its results."""

    about: BaselineFile
    results: pd.DataFrame

    @property
    def reference(self) -> float:
        """Seconds per unit of reference work in that night; NaN if there was none."""
        return reference_seconds(self.results)


def read_baseline(nights: Nights) -> AcceptedNight | None:
    """The suite's baseline, or None while there is none.

    Raises ``UserError`` if it is damaged, ``StoreError`` if it or any other file of these nights
    was written by another version of calsweep.
    """
    nights.check_format()
    path = nights.directory / BASELINE_FILE
    remedy = f"accept a night again: {nights.accept()}"
    if not path.exists():
        return None
    try:
        about = BaselineFile.model_validate_json(path.read_bytes())
        results = pd.read_parquet(nights.directory / COPY)
        if digest(results) != about.digest:
            raise ValueError(f"{COPY} belongs to another night")
    except (OSError, ValueError, KeyError) as error:  # pydantic's and pyarrow's are among them
        problem = "not a valid baseline" if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} is damaged: {problem}; {remedy}") from None
    return AcceptedNight(about, results)


def make_baseline(nights: Nights, state: NightState, results: pd.DataFrame, reason: str) -> None:
    """Make a complete night the baseline; the previous one is added to its list of earlier ones.

    Raises ``ValueError`` if the night is not complete.
    """
    if state.status != "complete":
        raise ValueError(
            f"night {state.night} is {state.status}; only a complete night can be the baseline"
        )
    before = _before(nights)
    earlier = [] if before is None else [Acceptance(**_acceptance(before)), *before.earlier]
    about = BaselineFile(
        night=state.night,
        digest=digest(results),
        accepted_at=now(),
        accepted_by="calsweep" if reason == FIRST else _user(),
        reason=reason,
        suite=nights.suite,
        identity=state.identity,
        earlier=earlier,
    )
    write_atomically(nights.directory / COPY, parquet(results))
    write_atomically(
        nights.directory / BASELINE_FILE, about.model_dump_json(indent=1).encode() + b"\n"
    )


def accept(
    nights: Nights, night: str | None, reason: str
) -> tuple[BaselineFile, list[tuple[str, ...]]]:
    """Accept a night, by default the last complete one; also return the cells that it drops.

    Raises ``UserError`` if there is no such night or it is not complete, ``StoreError`` if some
    of the nights were written by another version of calsweep.
    """
    nights.check_format()
    state = _chosen(nights, night)
    try:
        results = pd.read_parquet(nights.place(state.night) / RESULTS_FILE)
    except (OSError, ValueError) as error:
        raise UserError(f"night {state.night}: cannot read its results: {error}") from None
    if digest(results) != state.digest:
        raise UserError(
            f"night {state.night}: its results differ from those it was judged by; run it again: "
            f"{nights.finish(state.night)}"
        )
    gone = _given_up(nights, results)
    make_baseline(nights, state, results, reason)
    made = read_baseline(nights)
    assert made is not None, "it was written a moment ago"
    return made.about, gone


def _chosen(nights: Nights, night: str | None) -> NightState:
    if night is None:
        states = (nights.state(each) for each in reversed(nights.dates()))
        complete = next((s for s in states if s is not None and s.status == "complete"), None)
        if complete is None:
            raise UserError(
                f"{nights.directory}: no night of {nights.suite!r} is complete, so there is "
                "nothing to accept; run calsweep nightly first"
            )
        return complete
    state = nights.state(night)
    if state is None:
        known = ", ".join(nights.dates()[-5:]) or "none"
        raise UserError(f"{nights.directory}: no night {night}; the latest are: {known}")
    if state.status != "complete":
        why = f" ({state.reason})" if state.reason else ""
        raise UserError(
            f"night {night} is {state.status}{why}: a result missing from the baseline would "
            f"go unnoticed in every later night; finish it first: {nights.finish(night)}"
        )
    return state


def _given_up(nights: Nights, results: pd.DataFrame) -> list[tuple[str, ...]]:
    try:
        before = read_baseline(nights)
    except UserError:
        return []
    if before is None:
        return []
    there = set(cells(results))
    return [cell for cell in cells(before.results) if cell not in there]


def _before(nights: Nights) -> BaselineFile | None:
    """The current baseline's file, even if its copy of the results is damaged."""
    try:
        return BaselineFile.model_validate_json((nights.directory / BASELINE_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _acceptance(about: BaselineFile) -> dict[str, str]:
    return {name: getattr(about, name) for name in Acceptance.model_fields}


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container's user may have no name
        return socket.gethostname()
