"""How a night went, as a value, and as JSON for machines.

``verdict.json``, format 2, has these entries; later versions may add entries but change none::

    format      2
    suite       the suite's name
    night       the date, as 2026-11-16
    verdict     "identical" (to the baseline, bit by bit), "fine" (no cell shown to be worse),
                "regression" (some cell is worse or drifting), or "incomplete" (trials failed,
                results of the suite or of the baseline are missing, or the baseline was
                lost: nothing is judged as good)
    exit_code   0 for the first two, 1 for the others
    status      "complete", "unfinished" or "failed"
    reasons     why the night is not complete, in words
    sentences   the summary for people
    identical   whether every result is bit-identical to the baseline's
    digest      of all results
    baseline    null, or {"night", "digest", "accepted_at", "accepted_by", "reason", "first"};
                "first": tonight was the first complete night and became the baseline
    changed     differences from the baseline's identity: [{"what", "before", "now"}]
    commits     since the baseline's revision, newest first, where they are known
    speed       how many times longer the reference work took than in the baseline's night;
                null if there is nothing to compare with
    sweeps      [{"name", "directory", "trials", "done", "failed", "seconds"}]
    cells       one line per cell and metric, worst first: {"sweep", "dataset", "row",
                "calibrator", "metric", "pairs", "baseline", "tonight", "difference", "low",
                "high", "p", "p_holm", "verdict", "converged", "since", "revisions",
                "ongoing"}; "converged" is the share of seeds on which the calibrator's fit
                converged; if the verdict is "worse", "since" is the first night of the present
                level and "revisions" those of the night before and of that night ("a…b");
                "ongoing" is whether the last night that judged the value already called it
                worse or drifting
    trends      one line per cell and metric: {"sweep", "dataset", "row", "calibrator",
                "metric", "nights", "distinct", "first", "last", "slope", "total", "p", "p_holm",
                "verdict", "ongoing"}
    steps       one line per cell and metric, including costs: {"sweep", "dataset", "row",
                "calibrator", "metric", "nights", "distinct", "since", "last_before", "before",
                "after", "p", "p_holm", "verdict", "ongoing"}; a step in the nights' history
                since the baseline, "worse" if it is significant
    days        every day since the first night, the last 60 at most:
                [{"night", "status", "verdict", "reason"}]; status may be "missed" too

Numbers that are not finite are null.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sweeps.nightly.archive.baseline import Acceptance, BaselineFile
from sweeps.nightly.archive.nights import Day, Nights
from sweeps.nightly.judge.changes import Change
from sweeps.nightly.judge.rules import (
    BETTER,
    BUSY_MACHINE,
    DRIFTING,
    IDENTICAL,
    MISSING,
    NEW,
    TOO_FEW_PAIRS,
    UNCHANGED,
    WORSE,
    value_key,
)

_FORMAT = 2
VERDICT_FILE = "verdict.json"
MOST_DAYS = 60
GOOD = ("identical", "fine")
BAD = (WORSE, DRIFTING)
JUDGED = (WORSE, BETTER, UNCHANGED, IDENTICAL)
PastVerdicts = Mapping[tuple[str, ...], str]
"""A night's verdict on a cell: by sweep, dataset, row, calibrator, metric, night."""
# Worst first.
ORDER = (WORSE, MISSING, TOO_FEW_PAIRS, NEW, BETTER, BUSY_MACHINE, UNCHANGED, IDENTICAL)


class SweepCount(NamedTuple):
    """The progress of one of the night's sweeps."""

    name: str
    directory: str
    trials: int
    done: int
    failed: int
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """How a night went; the module's docstring explains the parts."""

    suite: str
    night: str
    overall: str
    status: str
    reasons: list[str]
    sentences: list[str]
    identical: bool
    digest: str
    baseline: BaselineFile | None
    first: bool
    changed: list[Change]
    commits: list[str]
    speed: float
    sweeps: list[SweepCount]
    lines: pd.DataFrame
    trends: pd.DataFrame
    steps: pd.DataFrame
    days: list[Day]
    finish: str
    """The command that runs this night again."""
    accept: str
    """The command that makes it the baseline."""
    link: str = ""
    """The night's page on the tracking server, if there is one."""

    @property
    def ongoing(self) -> bool:
        """Whether something is worse or drifting, and all of it was reported before."""
        bad = [
            bool(line["ongoing"])
            for frame in (self.lines, self.trends, self.steps)
            for line in frame[frame["verdict"].isin(BAD)].to_dict("records")
        ]
        return bool(bad) and all(bad)

    @property
    def acceptable(self) -> bool:
        """Whether the night could become the baseline and is not the baseline already."""
        return self.status == "complete" and not self.identical

    @property
    def exit_code(self) -> int:
        """0 for a good night, 1 for any other."""
        return 0 if self.overall in GOOD else 1

    def json(self) -> bytes:
        """The content of ``verdict.json``."""
        accepted = None
        if self.baseline is not None:
            fields = {name: getattr(self.baseline, name) for name in Acceptance.model_fields}
            accepted = fields | {"first": self.first}
        content = {
            "format": _FORMAT,
            "suite": self.suite,
            "night": self.night,
            "verdict": self.overall,
            "exit_code": self.exit_code,
            "status": self.status,
            "reasons": self.reasons,
            "sentences": self.sentences,
            "identical": self.identical,
            "digest": self.digest,
            "baseline": accepted,
            "changed": [each._asdict() for each in self.changed],
            "commits": self.commits,
            "speed": _plain(self.speed),
            "sweeps": [each._asdict() for each in self.sweeps],
            "cells": records(self.lines),
            "trends": records(self.trends),
            "steps": records(self.steps),
            "days": [each._asdict() for each in self.days[-MOST_DAYS:]],
        }
        return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def past_verdicts(nights: Nights, dates: Iterable[str]) -> PastVerdicts:
    """The verdicts of those nights that still exist."""
    found: dict[tuple[str, ...], str] = {}
    for date in dates:
        # An old night may have been deleted.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads((nights.place(date) / VERDICT_FILE).read_bytes())
            for line in content["cells"]:
                found[*value_key(line), date] = str(line["verdict"])
    return found


def bad_values(nights: Nights, date: str, baseline: str) -> dict[tuple[str, ...], bool] | None:
    """By cell and metric, whether a night called the value worse or drifting, if it judged it.

    None if that night no longer exists or had another baseline than that of this digest.
    """
    try:
        content = json.loads((nights.place(date) / VERDICT_FILE).read_bytes())
        if content["baseline"]["digest"] != baseline:
            return None
        judged = [line for line in content["cells"] if line["verdict"] in JUDGED]
        also = [line for name in ("steps", "trends") for line in content[name]]
        bad = [line for line in also if line["verdict"] in BAD]
        return {value_key(line): line["verdict"] in BAD for line in (*judged, *bad)}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def worst_first(lines: pd.DataFrame) -> pd.DataFrame:
    """The lines by verdict, and within a verdict by p-value."""
    if lines.empty:
        return lines
    ranked = lines.assign(order=lines["verdict"].map(ORDER.index)).sort_values(
        ["order", "p"], kind="stable"
    )
    return ranked.drop(columns="order").reset_index(drop=True)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON values."""
    rows = frame.to_dict("records")
    return [{str(name): _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
