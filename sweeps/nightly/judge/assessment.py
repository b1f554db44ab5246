"""A night against the baseline and against earlier nights: the verdict, and its sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from sweeps.nightly.archive import history as past
from sweeps.nightly.archive.baseline import AcceptedNight, BaselineFile
from sweeps.nightly.archive.nights import Day, Nights, NightState
from sweeps.nightly.archive.results import (
    CELL,
    TIMES,
    UNLIKE,
    cells,
    judged,
    reference_seconds,
)
from sweeps.nightly.judge.changes import Change, between, changes, commits
from sweeps.nightly.judge.judgement import judge, overall
from sweeps.nightly.judge.rules import (
    COST,
    DRIFTING,
    IDENTICAL,
    STEP_COLUMNS,
    TREND_COLUMNS,
    UNCHANGED,
    VERDICT_COLUMNS,
    WORSE,
    Judge,
    value_key,
)
from sweeps.nightly.judge.sentences import sentences
from sweeps.nightly.judge.steps import STEP_NIGHTS, Since, since, steps
from sweeps.nightly.judge.trends import trends
from sweeps.nightly.judge.verdict import (
    BAD,
    SweepCount,
    Verdict,
    bad_values,
    worst_first,
)
from sweeps.report.wording import count, listed

MOST_NAMED = 4
LOST = "there are earlier nights but no baseline"


def assess(
    state: NightState,
    results: pd.DataFrame,
    sweeps: list[SweepCount],
    reasons: list[str],
    baseline: AcceptedNight | None,
    history: pd.DataFrame,
    settings: Judge,
    *,
    nights: Nights,
    first: bool = False,
) -> Verdict:
    """Judge a night; ``reasons`` say why it is not complete, and are empty if it is.

    ``history`` holds the complete nights, including tonight if it is complete. ``first``:
    tonight has just become the baseline automatically.
    """
    reasons = [*reasons, *_lost(state, baseline, history, nights)]
    complete = not reasons
    columns = (VERDICT_COLUMNS, TREND_COLUMNS, STEP_COLUMNS)
    lines, drifts, stepped = (pd.DataFrame(columns=names) for names in columns)
    speed = float("nan")
    changed: list[Change] = []
    if baseline is not None:
        about = baseline.about
        speed = reference_seconds(results) / baseline.reference
        wanted = [*CELL, "seed", *judged(), *TIMES]
        now, before = (frame.reindex(columns=wanted) for frame in (results, baseline.results))
        lines = worst_first(judge(now, before, settings))
        lines = lines.assign(converged=_converged(lines, results))
        until = history[history["night"] <= state.night]
        recent = past.comparable(until, about.night, baseline.reference)
        drifts, stepped = trends(recent, settings), steps(recent, settings)
        # An incomplete night is not part of the history, which cannot date its changes then.
        when = since(stepped, recent) if state.night in set(recent["night"]) else {}
        lines = _dated(lines, when)
        reports = _reports(nights, recent, state, about)
        lines, drifts, stepped = (
            _ongoing(each, when, reports, state.night) for each in (lines, drifts, stepped)
        )
        changed = changes(about.identity, state.identity)
    identical = baseline is not None and complete and state.digest == baseline.about.digest
    if identical:  # whatever the nights in between were, tonight is what was accepted
        drifts = drifts.replace({"verdict": {DRIFTING: UNCHANGED}})
        stepped = stepped.replace({"verdict": {WORSE: UNCHANGED}})
    word = overall(lines, drifts, stepped, complete=complete)
    if complete and (first or (word == "identical" and not identical)):
        word = "fine"
    days = nights.days(state.night, list(history["night"].unique()))
    tonight = Day(state.night, state.status, word, state.reason)
    verdict = Verdict(
        suite=state.suite,
        night=state.night,
        overall=word,
        status=state.status,
        reasons=reasons,
        sentences=[],
        identical=identical,
        digest=state.digest,
        baseline=None if baseline is None else baseline.about,
        first=first,
        changed=changed,
        commits=_commits(changed),
        speed=speed,
        sweeps=sweeps,
        lines=lines,
        trends=drifts,
        steps=stepped,
        days=[*(day for day in days if day.night != state.night), tonight],
        finish=nights.finish(state.night),
        accept=nights.accept(state.night),
    )
    return replace(verdict, sentences=list(_sentences(verdict, results, baseline)))


def differing(results: pd.DataFrame, baseline: pd.DataFrame) -> list[str]:
    """The columns in which two nights with the same rows differ; none if the rows differ."""
    keys = [*CELL, "seed"]
    now, before = (frame.sort_values(keys, ignore_index=True) for frame in (results, baseline))
    if not now[keys].equals(before[keys]):
        return []
    names = dict.fromkeys((*now.columns, *before.columns))
    shared = [name for name in names if name in now and name in before]
    odd = [name for name in names if name not in shared]
    same = [name for name in shared if now[name].equals(before[name])]
    return [name for name in (*odd, *shared) if name not in (*same, *UNLIKE)]


def _converged(lines: pd.DataFrame, results: pd.DataFrame) -> pd.Series:
    """The share of tonight's seeds on which the calibrator's fit converged; costs have none."""
    found = results.groupby(CELL)["converged"].mean() if len(results) else pd.Series(dtype=float)
    share = [found.get(cell, 1.0) for cell in lines[CELL].itertuples(index=False, name=None)]
    return pd.Series(share, index=lines.index, dtype=float)


def _reports(
    nights: Nights, recent: pd.DataFrame, state: NightState, about: BaselineFile
) -> dict[tuple[str, ...], dict[str, bool]]:
    """By cell and metric, which earlier nights judged the value, and whether they called it bad.

    If a night was deleted, or had another baseline, it is unknown what it and the nights before
    it would have said.
    """
    found: defaultdict[tuple[str, ...], dict[str, bool]] = defaultdict(dict)
    earlier = sorted(str(night) for night in set(recent["night"]) - {state.night})
    for night in reversed(earlier[-STEP_NIGHTS:]):
        found_bad = bad_values(nights, night, about.digest)
        if found_bad is None:
            break
        for key, bad in found_bad.items():
            found[key][night] = bad
    return dict(found)


def _dated(lines: pd.DataFrame, when: Mapping[Any, Since]) -> pd.DataFrame:
    """Add since when each line is worse, and the revisions around that night."""
    rows = _rows(lines)
    found = [when.get(value_key(line)) if line["verdict"] == WORSE else None for line in rows]
    return lines.assign(
        since=[step.night if step else "" for step in found],
        revisions=[between(step.revision_before, step.revision) if step else "" for step in found],
    )


def _ongoing(
    frame: pd.DataFrame,
    when: Mapping[tuple[str, ...], Since],
    reports: Mapping[tuple[str, ...], Mapping[str, bool]],
    tonight: str,
) -> pd.DataFrame:
    """Add whether each bad line is old news: reported in the last night that judged the value, or
    since its present level began.

    Where no night says so, a level that began before tonight is old news.
    """

    def known(line: Mapping[str, Any]) -> bool:
        key = value_key(line)
        begin = when[key].night if key in when else tonight
        judged = reports.get(key, {})
        if not judged:
            return begin < tonight
        return judged[max(judged)] or any(bad for night, bad in judged.items() if night >= begin)

    rows = _rows(frame)
    return frame.assign(ongoing=[line["verdict"] in BAD and known(line) for line in rows])


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _lost(
    state: NightState, baseline: AcceptedNight | None, history: pd.DataFrame, nights: Nights
) -> Iterator[str]:
    """A lost baseline is not replaced by whichever night comes next."""
    earlier = past.others(history, state.night)
    if baseline is None and earlier:
        yield f"{LOST}; accept one: {nights.accept(earlier[-1])}"


def _sentences(
    verdict: Verdict, results: pd.DataFrame, baseline: AcceptedNight | None
) -> Iterator[str]:
    """The sentences for people, the most important first."""
    counted = f"{count(len(results), 'result')} of {count(len(cells(results)), 'cell')}"
    if verdict.reasons:
        yield from _incomplete(verdict)
    elif verdict.first:
        yield f"The first complete night: its {counted} are now the baseline."
    if baseline is None or verdict.first:
        return
    night = baseline.about.night
    lead, *others = sentences(
        verdict.lines, verdict.trends, verdict.steps, complete=not verdict.reasons
    )
    if verdict.identical and verdict.overall != "regression":
        yield f"Bit-identical to the baseline of {night}: {counted}."
    elif not verdict.reasons:
        yield f"{lead.removesuffix('.')} (baseline: {night}; {counted})."
    yield from others
    if not verdict.reasons:
        yield from _why(verdict, results, baseline)


def _incomplete(verdict: Verdict) -> Iterator[str]:
    first, *others = verdict.reasons
    if verdict.status == "complete":
        yield f"The night is complete, but its verdict is incomplete: {first}"
        return
    yield f"The night is not complete, so its verdict is incomplete: {first}."
    for reason in others[:MOST_NAMED]:
        yield f"{reason[0].upper()}{reason[1:]}."
    if len(others) > MOST_NAMED:
        yield f"The report lists {count(len(others) - MOST_NAMED, 'more problem')}."
    if verdict.baseline is None and not any(reason.startswith(LOST) for reason in others):
        yield "There is no baseline yet: the first complete night becomes the baseline."
    yield f"To finish it: {verdict.finish}"


def _why(verdict: Verdict, results: pd.DataFrame, baseline: AcceptedNight) -> Iterator[str]:
    """What may have caused the differences."""
    if verdict.identical and verdict.overall == "regression":
        yield "The results themselves are bit-identical to the baseline's."
    values = verdict.lines[verdict.lines["metric"] != COST]["verdict"]
    if not verdict.identical and len(values) and bool((values == IDENTICAL).all()):
        names = listed(differing(results, baseline.results), MOST_NAMED)
        yield f"All judged values are identical, but other numbers are not: {names}."
    if verdict.changed:
        names = listed([change.what for change in verdict.changed], MOST_NAMED)
        yield f"Changed since the baseline: {names}."
    elif not verdict.identical:
        yield (
            "Code, libraries, machine, specs and data are those of the baseline, yet the "
            "numbers differ: something is not reproducible."
        )


def _commits(changed: Sequence[Change]) -> list[str]:
    return next((commits(each.before, each.now) for each in changed if each.what == "git"), [])
