"""One night, in order: train the suite's sweeps, collect, compare with the baseline, report.

A night is resumed by running it again: its finished trials are kept if they were trained by
the same code on the same data. Nothing is taken from other nights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from calibration.metrics import METRICS, Shown
from sweeps.host.secrets import masked
from sweeps.nightly.archive import history as past
from sweeps.nightly.archive.baseline import FIRST, AcceptedNight, make_baseline, read_baseline
from sweeps.nightly.archive.nights import RUNS, STATE_FILE, Nights, NightState, now
from sweeps.nightly.archive.results import RESULTS_FILE, digest, parquet
from sweeps.nightly.judge.assessment import assess
from sweeps.nightly.judge.verdict import GOOD, VERDICT_FILE, Verdict
from sweeps.nightly.report.charts import chart_data
from sweeps.nightly.report.markdown import night_markdown
from sweeps.nightly.report.page import night_page
from sweeps.nightly.run.collection import Collected, collect
from sweeps.nightly.run.identity import identity
from sweeps.nightly.run.suite import LoadedSuite, for_night
from sweeps.nightly.run.unattended import GRACE_SECONDS, MARGIN_SECONDS, TimeUp, time_limit
from sweeps.spec import LoadedSpec
from sweeps.store import Store, StoreError
from sweeps.tracking.mlflow.night_run import VERDICT, NightRun, metric_name

Train = Callable[[LoadedSpec, Store, str | None, bool], None]
"""Trains a sweep to its end: takes its spec, the night's store, the night's MLflow run, and
whether to retry failed trials."""
Tell = Callable[[str], None]
MARKDOWN, PAGE = "report.md", "report.html"


@dataclass(frozen=True)
class Night:
    """The inputs of a night."""

    suite: LoadedSuite
    nights: Nights
    date: str
    tell: Tell
    train: Train
    tracking: str
    limit: float | None = None
    address: str | None = None
    """The Ray cluster that trains; None is this machine."""


def run_night(night: Night) -> Verdict:
    """Run or resume a night, judge it and write its files; the caller must hold the lock.

    A night that reaches its time limit is judged as incomplete. Raises ``UserError`` if the
    baseline is damaged, ``StoreError`` if nothing can be written or earlier nights were written
    by another version of calsweep, ``KeyboardInterrupt`` if it is stopped. If anything ends the
    night before its verdict, it is marked as unfinished.
    """
    nights = night.nights
    baseline = read_baseline(nights)  # raises, if at all, before the work
    for left in nights.mark_unfinished(night.date):
        night.tell(f"the night of {left} did not finish; it is marked as unfinished and not judged")
    state, resumed = _begin(night)
    run = NightRun(nights.suite, night.date, night.tracking, nights.directory)
    sweeps = {
        name: for_night(loaded, nights.suite, night.date)
        for name, loaded in night.suite.sweeps.items()
    }
    store = Store(nights.place(night.date) / RUNS)
    stopped = ""
    try:
        try:
            with time_limit(night.limit):
                parent = run.begin()
                for dated in sweeps.values():
                    night.train(dated, store, parent, resumed)
        except TimeUp as up:
            stopped = str(up)
        collected = collect(sweeps, store, list(night.suite.suite.judge.minimum))
        verdict = _conclude(night, state, collected, stopped, baseline)
        _publish(night, run, verdict)
    except BaseException as error:
        _leave(night, state, run, masked(str(error)) or "it was stopped")
        raise
    return replace(verdict, link=run.link)


def _begin(night: Night) -> tuple[NightState, bool]:
    """The night's initial state, and whether it resumes an earlier attempt."""
    nights, date = night.nights, night.date
    found = identity(night.suite, elsewhere=night.address is not None)
    before = nights.state(date)
    runs = nights.place(date) / RUNS
    resumed = before is not None and before.identity == found and runs.exists()
    if runs.exists() and not resumed:
        number = 1
        while (aside := runs.with_name(f"{RUNS}-{number}")).exists():
            number += 1
        runs.rename(aside)
        night.tell(f"code, data or machine have changed: earlier trials are set aside in {aside}")
    limit = night.limit
    fresh = NightState(
        suite=nights.suite,
        given=nights.given,
        night=date,
        began=now(),
        ends_by="" if limit is None else now(limit + GRACE_SECONDS + MARGIN_SECONDS),
        identity=found,
    )
    if before is not None and resumed:
        night.tell(f"resuming the night of {date}")
        fresh = fresh.model_copy(update={"began": before.began})
    if before is not None:
        _forget(nights, date)
    nights.write_state(fresh)
    return fresh, resumed


def _forget(nights: Nights, date: str) -> None:
    """Remove the verdict of a night that is run again or did not finish."""
    for name in (VERDICT_FILE, MARKDOWN, PAGE):
        (nights.place(date) / name).unlink(missing_ok=True)
    past.forget(nights, date)


def _leave(night: Night, state: NightState, run: NightRun, reason: str) -> None:
    """Mark a night that ended before its verdict; a failed write must not mask the error."""
    nights = night.nights
    state = nights.state(night.date) or state
    if state.status != "running":  # it has its verdict; only the MLflow run may be incomplete
        return
    left = {"status": "unfinished", "reason": reason, "verdict": "incomplete", "ended": now()}
    with contextlib.suppress(StoreError, OSError):
        nights.write_state(state.model_copy(update=left))
        _forget(nights, night.date)
    run.end("KILLED", {VERDICT: "incomplete"}, {}, {})


def _conclude(
    night: Night,
    state: NightState,
    collected: Collected,
    stopped: str,
    baseline: AcceptedNight | None,
) -> Verdict:
    """Judge the night and write its files, the state last."""
    nights, date = night.nights, night.date
    reasons = [*([stopped] if stopped else []), *collected.problems]
    waiting = any(each.done < each.trials or not each.trials for each in collected.sweeps)
    status = "complete" if not reasons else "unfinished" if stopped or waiting else "failed"
    content = parquet(collected.results)
    nights.write(date, RESULTS_FILE, content)
    results = pd.read_parquet(nights.place(date) / RESULTS_FILE)
    ended = {
        "status": status,
        "reason": reasons[0] if reasons else "",
        "ended": now(),
        "digest": digest(results),
    }
    state = state.model_copy(update=ended)
    history = past.keep(nights, state, results) if not reasons else past.forget(nights, date)
    first = baseline is None and not reasons and not past.others(history, date)
    if first:
        make_baseline(nights, state, results, FIRST)
        baseline = read_baseline(nights)
    verdict = assess(
        state,
        results,
        collected.sweeps,
        reasons,
        baseline,
        history,
        night.suite.suite.judge,
        nights=nights,
        first=first,
    )
    nights.write(date, VERDICT_FILE, verdict.json())
    nights.write(date, MARKDOWN, night_markdown(verdict).encode())
    shown = chart_data(nights, verdict, history, baseline)
    nights.write(date, PAGE, night_page(verdict, shown).encode())
    nights.write_state(state.model_copy(update={"verdict": verdict.overall}))
    return verdict


def _publish(night: Night, run: NightRun, verdict: Verdict) -> None:
    """Log verdict, metrics and files to the night's MLflow run; print one line if that fails."""
    place = night.nights.place(night.date)
    names = (VERDICT_FILE, PAGE, MARKDOWN, RESULTS_FILE, STATE_FILE)
    files = {name: (place / name).read_bytes() for name in names}
    tags = {
        VERDICT: verdict.overall,
        "calsweep.baseline": verdict.baseline.night if verdict.baseline else "",
        "calsweep.digest": verdict.digest,
    }
    status = "FINISHED" if verdict.overall in GOOD else "FAILED"
    run.end("KILLED" if verdict.status == "unfinished" else status, tags, _metrics(verdict), files)
    if run.problem:
        night.tell(run.problem)


def _metrics(verdict: Verdict) -> dict[str, float]:
    """Counts, speed, and the result of each cell."""
    verdicts = verdict.lines["verdict"] if len(verdict.lines) else pd.Series(dtype=str)
    found = {
        "trials": float(sum(each.done for each in verdict.sweeps)),
        "failed": float(sum(each.failed for each in verdict.sweeps)),
        **{f"cells/{word}": float((verdicts == word).sum()) for word in ("worse", "better")},
        "speed": verdict.speed,
    }
    for _, line in verdict.lines.iterrows():
        if line["metric"] in METRICS.names(Shown.HEADLINE):
            name = f"{line['row']}:{line['calibrator']}"
            found[metric_name(line["metric"], line["sweep"], line["dataset"], name)] = line[
                "tonight"
            ]
    return {name: float(value) for name, value in found.items() if pd.notna(value)}
