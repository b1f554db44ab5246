"""A night's verdict in sentences, the worst first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from calibration.metrics import METRICS
from sweeps.nightly.archive.results import CELL
from sweeps.nightly.judge.rules import (
    BETTER,
    BUSY_MACHINE,
    COST,
    DRIFTING,
    IDENTICAL,
    MISSING,
    NEW,
    TOO_FEW_PAIRS,
    UNCHANGED,
    WORSE,
    value_key,
)
from sweeps.nightly.judge.wording import MINUS, cell_name, percent
from sweeps.report.wording import count, listed, number, p_value, seconds

_MOST = 12
"""Most sentences of one kind; the report's table has the rest."""
UNJUDGED = {
    MISSING: "Missing tonight, though the baseline has it",
    TOO_FEW_PAIRS: "Too few seeds to judge",
}
"""Verdicts that make a night incomplete although all of its trials are done."""
INCOMPLETE = "Incomplete: "
UNTESTED = "without a test, outside the false-alarm level"
_Lines = list[dict[str, Any]]


def sentences(
    lines: pd.DataFrame, trends: pd.DataFrame, steps: pd.DataFrame, *, complete: bool = True
) -> list[str]:
    """The sentences for people, naming cells; the first says how the night went.

    ``lines``, ``trends`` and ``steps`` are the results of ``judge``, ``trends`` and ``steps``; a
    line may also say since when it is worse, and whether that is ongoing.
    """
    worse, drifting = _of(lines, WORSE), _of(trends, DRIFTING)
    known = {value_key(line) for line in worse}
    stepped = [line for line in _of(steps, WORSE) if value_key(line) not in known]
    lead = _regression(worse, stepped, drifting, len(lines)) or _summary(lines, complete)
    found = [lead if complete else f"The night is not complete. {lead}"]
    tests = int(lines["p_holm"].notna().sum())
    found += _some([_changed(line, tests) for line in worse], WORSE)
    places = int(steps["p_holm"].notna().sum())
    found += _some([_step(line, places) for line in stepped], WORSE)
    drifts = int(trends["p_holm"].notna().sum())
    found += _some([_drift(line, drifts) for line in drifting], DRIFTING)
    found += [] if lead.startswith(INCOMPLETE) else [f"{each}." for each in _unjudged(lines)]
    new = _cells(lines, NEW)
    found += [f"New, with nothing to compare it to: {listed(new)}."] if new else []
    found += _some([_changed(line, tests) for line in _of(lines, BETTER)], BETTER)
    return found + list(_busy(lines))


def _regression(worse: _Lines, stepped: _Lines, drifting: _Lines, compared: int) -> str:
    """The summary of a night in which something is worse or drifting; otherwise empty."""
    kinds = (
        (worse, "worse than the baseline"),
        (stepped, "worse over the nights"),
        (drifting, "drifting"),
    )
    parts = [f"{count(len(found), 'value')} {words}" for found, words in kinds if found]
    if not parts:
        return ""
    known = [bool(line.get("ongoing")) for line in (*worse, *stepped, *drifting)]
    lead = "Ongoing regression" if all(known) else "Regression"
    old = f" ({sum(known)} ongoing)" if any(known) and not all(known) else ""
    return f"{lead}: {' and '.join(parts)}{old}, of {count(compared, 'value')} compared."


def _summary(lines: pd.DataFrame, complete: bool) -> str:
    """The summary of a night in which nothing is worse."""
    values = lines[lines["metric"] != COST]
    if not len(values):
        return "Nothing could be compared with the baseline."
    unjudged = list(_unjudged(lines))
    if complete and unjudged:
        return f"{INCOMPLETE}{'; '.join(each[0].lower() + each[1:] for each in unjudged)}."
    same = int((values["verdict"] == IDENTICAL).sum())
    if same == len(values):
        return f"Bit-identical to the baseline: {count(same, 'value')}."
    better = int((values["verdict"] == BETTER).sum())
    differ = int((values["verdict"].isin((UNCHANGED, BETTER))).sum())
    end = f" ({better} better)" if better else ""
    return (
        f"Nothing is shown to be worse than the baseline: of {count(len(values), 'value')} "
        f"{same} are bit-identical, {differ} changed{end}."
    )


def _unjudged(lines: pd.DataFrame) -> Iterator[str]:
    """The cells that could not be judged."""
    for verdict, words in UNJUDGED.items():
        names = _cells(lines, verdict)
        if names:
            yield f"{words}: {listed(names)}"


def _changed(line: dict[str, Any], tests: int) -> str:
    name, verdict = _name(line), line["verdict"]
    if line["metric"] == COST:
        before, after = seconds(line["baseline"]), seconds(line["tonight"])
        change, low, high = (percent(line[each]) for each in ("difference", "low", "high"))
        return (
            f"{name}: training work {before} → {after} ({change} at the machine's pace, 95 % "
            f"interval {low} to {high}, {_p(line, tests)}): {verdict}{_since(line)}"
        )
    before, after = number(line["baseline"]), number(line["tonight"])
    title = METRICS.title(line["metric"])
    if not math.isfinite(line["difference"]):
        before, after = before.replace("–", "not a number"), after.replace("–", "not a number")
        why = UNTESTED if math.isnan(line["p_holm"]) else _p(line, tests)
        return f"{name}: {title} {before} → {after} ({why}): {verdict}{_since(line)}"
    return (
        f"{name}: {title} {before} → {after} ({_signed(line['difference'])}, 95 % interval "
        f"{_signed(line['low'])} to {_signed(line['high'])}, {_p(line, tests)}): {verdict}"
        f"{_since(line)}"
    )


def _since(line: dict[str, Any]) -> str:
    """`` since 2026-11-03 (commits 1a2b3c4…5d6e7f8), ongoing``, as far as it is known."""
    commits = f" (commits {line['revisions']})" if line.get("revisions") else ""
    since = f" since {line['since']}{commits}" if line.get("since") else ""
    return f"{since}{_ongoing(line)}"


def _ongoing(line: dict[str, Any]) -> str:
    return ", ongoing" if line.get("ongoing") else ""


def _step(line: dict[str, Any], tests: int) -> str:
    before, after = number(line["before"]), number(line["after"])
    return (
        f"{_name(line)}: {METRICS.title(line['metric'])} {before} → {after} between the nights "
        f"until {line['last_before']} and those since {line['since']} ({_p(line, tests)}): {WORSE}"
        f"{_ongoing(line)}"
    )


def _drift(line: dict[str, Any], tests: int) -> str:
    begin, end = number(line["first"]), number(line["last"])
    return (
        f"{_name(line)}: {METRICS.title(line['metric'])} {begin} → {end} "
        f"over {line['nights']} nights "
        f"({_signed(line['total'])} in all, {_p(line, tests)}): {DRIFTING}{_ongoing(line)}"
    )


def _busy(lines: pd.DataFrame) -> Iterator[str]:
    """Costs that cannot be judged."""
    costs = lines[lines["metric"] == COST]
    busy = int((costs["verdict"] == BUSY_MACHINE).sum())
    if busy:
        yield (
            f"The costs of {busy} of {count(len(costs), 'training')} are not judged: the machine "
            "was busy with other work tonight or in the baseline's night."
        )


def _some(found: list[str], verdict: str) -> list[str]:
    if len(found) <= _MOST + 1:
        return found
    return [*found[:_MOST], f"… and {len(found) - _MOST} more that are {verdict}."]


def _of(lines: pd.DataFrame, verdict: str) -> _Lines:
    """Lines with a verdict: untested ones first, then by p-value."""
    rows = lines[lines["verdict"] == verdict]
    chosen = rows.sort_values("p_holm", kind="stable", na_position="first")
    return [{str(name): value for name, value in row.items()} for row in chosen.to_dict("records")]


def _cells(lines: pd.DataFrame, verdict: str) -> list[str]:
    values = lines[lines["metric"] != COST]
    return list(dict.fromkeys(_name(line) for line in _of(values, verdict)))


def _name(line: dict[str, Any]) -> str:
    return cell_name([line[name] for name in CELL])


def _p(line: dict[str, Any], tests: int) -> str:
    return f"{p_value(line['p_holm'])} after correction over {count(tests, 'test')}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", MINUS)
