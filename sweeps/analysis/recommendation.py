"""What to use: the answer of a sweep for every dataset, as values, sentences and JSON.

``selection`` chose the recommended row on validation data; nothing is chosen here. Test data
says what it gains, and how surely, also if it gains nothing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from calibration.hyperparameters import Value
from sweeps.analysis.comparisons import CHOSEN
from sweeps.analysis.noise import Standing, nll_region
from sweeps.analysis.recommendation_text import (
    TEMPERATURE,
    first_sentence,
    further_sentences,
    overall_sentence,
)
from sweeps.analysis.results import label
from sweeps.analysis.selection import Candidate, Selection
from sweeps.analysis.verdicts import BASELINE

PLAIN_METHOD = "standard"
"""The method of a plain network."""
REFERENCES = ("identity", TEMPERATURE)
"""The calibrators of the plain network that the recommended row is compared with."""
GAINED = ("nll", "ece")
_Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Gain:
    """The recommended row against the plain network with ``calibrator``, on test data.

    ``difference`` is ours − theirs with its interval, paired over the ``pairs`` common seeds, as
    in ``comparisons``; ``would_decide`` is what would decide an open question, if known.
    """

    metric: str
    calibrator: str
    ours: float
    theirs: float
    difference: float
    low: float
    high: float
    pairs: int
    verdict: str
    would_decide: str = ""


@dataclass(frozen=True)
class RunnerUp:
    """The recommendation without the winner's row, and its validation NLL against the winner's."""

    row: str
    calibrator: str
    standing: Standing

    @property
    def label(self) -> str:
        """Its name."""
        return label(self.row, self.calibrator)


@dataclass(frozen=True)
class Advice:
    """What to use on one dataset; ``row`` is empty if nothing can be recommended.

    ``settings`` are the hyperparameters that were searched. ``plain`` is the row of the plain
    network, if the sweep has one, and ``plain_rows`` how many rows are trained by its method.
    ``relative_time`` is the training time relative to the plain row's, ``extra`` the additional
    hyperparameters searched. Of ``candidates``, rows with calibrators that could have won,
    ``tied`` are within noise of ``best``, the lowest validation NLL, and within ``region``.
    """

    dataset: str
    row: str = ""
    calibrator: str = "identity"
    settings: Mapping[str, Value] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    seeds: int = 0
    gains: Sequence[Gain] = ()
    plain: str | None = None
    plain_rows: int = 1
    plain_calibrators: Sequence[str] = ()
    relative_time: float = math.nan
    extra: Sequence[str] = ()
    candidates: int = 0
    tied: int = 0
    best: str = ""
    runner_up: RunnerUp | None = None
    confirmed: bool = True
    remaining: int = 0
    region: float = field(default_factory=nll_region)

    @property
    def label(self) -> str:
        """The name of the recommended row: ``focal + temperature``."""
        return label(self.row, self.calibrator)

    @property
    def sentence(self) -> str:
        """What to use, what that gains, how surely, and at what cost."""
        return first_sentence(self)

    @property
    def subject(self) -> str:
        """The beginning of ``sentence``, which a page sets in bold: where to use what."""
        begin, colon, _ = self.sentence.partition(": ")
        return begin if colon else ""

    @property
    def details(self) -> str:
        """The reason for the choice, the runner-up, and caveats."""
        return further_sentences(self)


@dataclass(frozen=True)
class Recommendation:
    """The advice for every dataset of a sweep.

    ``serving`` is the candidate within noise of the best on most datasets, and on how many.
    """

    datasets: Sequence[Advice] = ()
    serving: tuple[str, int] = ("", 0)

    @property
    def sentence(self) -> str:
        """The answer; for several datasets, the one that covers all of them."""
        return overall_sentence(self)

    @property
    def sentences(self) -> list[str]:
        """The answer, then each dataset's if there are several."""
        if len(self.datasets) < 2:
            return [self.sentence]
        return [self.sentence, *(advice.sentence for advice in self.datasets)]

    def to_json(self) -> str:
        """The recommendation as JSON; null for numbers that are not finite."""
        whole = {"sentence": self.sentence, "datasets": list(map(_entry, self.datasets))}
        return json.dumps(_finite(whole), indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True)
class SweepFacts:
    """The parts of a sweep's spec that the advice needs.

    ``plain`` is the row of the plain network, one of ``plain_rows``. ``settings`` are the
    searched hyperparameters' values by dataset and row, ``searched`` their names by row;
    ``remaining`` is the number of trials left, ``region`` that within which NLLs are the same.
    """

    datasets: Sequence[str]
    plain: str | None
    plain_rows: int
    settings: Mapping[tuple[str, str], Mapping[str, Value]]
    searched: Mapping[str, Sequence[str]]
    remaining: int = 0
    region: float = field(default_factory=nll_region)


def recommend(
    facts: SweepFacts, selection: Selection, table: pd.DataFrame, compared: _Lines
) -> Recommendation:
    """The recommendation of a sweep.

    ``table`` is the leaderboard, ``compared`` are lines as from ``compare``: the winners against
    the plain row with each of ``REFERENCES``.
    """
    advice = [_advice(name, facts, selection, table, compared) for name in facts.datasets]
    return Recommendation(advice, _serving(selection))


def _advice(
    dataset: str,
    facts: SweepFacts,
    selection: Selection,
    table: pd.DataFrame,
    compared: _Lines,
) -> Advice:
    winner = selection.winners.get(dataset)
    rows = table if table.empty else table[table["dataset"] == dataset]
    if winner is None:
        confirmed = any(where == dataset for where, _ in selection.cannot_win)
        return Advice(dataset, confirmed=confirmed, remaining=facts.remaining)
    row, calibrator = winner
    line = _line(rows, row, calibrator)
    standings = [s for (where, _, _), s in selection.standings.items() if where == dataset]
    plain = facts.plain
    own = list(facts.searched.get(row, ()))
    known = facts.searched.get(plain, ()) if plain is not None else ()
    return Advice(
        dataset,
        row,
        calibrator,
        settings=facts.settings.get((dataset, row), {}),
        values={m: float(line[m]) for m in GAINED if m in line},
        seeds=int(line["seeds"]),
        gains=_gains(compared, dataset),
        plain=plain,
        plain_rows=facts.plain_rows,
        plain_calibrators=[str(c) for c in rows[rows["row"] == plain]["calibrator"]],
        relative_time=_relative_time(rows, row, plain),
        extra=[name for name in own if name not in known],
        candidates=len(standings),
        tied=sum(standing.tied for standing in standings),
        best=label(*selection.best[dataset]),
        runner_up=_runner_up(selection, dataset),
        remaining=facts.remaining,
        region=facts.region,
    )


def _line(rows: pd.DataFrame, row: str, calibrator: str) -> pd.Series:
    return rows[(rows["row"] == row) & (rows["calibrator"] == calibrator)].iloc[0]


def _relative_time(rows: pd.DataFrame, row: str, plain: str | None) -> float:
    seconds = rows.groupby("row")["train_seconds"].mean()
    if plain is None or plain not in seconds:
        return math.nan
    return float(seconds[row] / seconds[plain])


def _gains(compared: _Lines, dataset: str) -> list[Gain]:
    """The gains, in the order of ``GAINED`` and ``REFERENCES``; unmeasured ones are omitted."""
    lines = {
        (line["metric"], line["baseline_calibrator"]): line
        for line in compared
        if (line["dataset"], line["comparison"]) == (dataset, CHOSEN)
        and line["verdict"] != BASELINE
        and not math.isnan(line["mean"])
    }
    wanted = [(metric, name) for metric in GAINED for name in REFERENCES]
    return [_gain(lines[each]) for each in wanted if each in lines]


def _gain(line: Mapping[str, Any]) -> Gain:
    return Gain(
        metric=str(line["metric"]),
        calibrator=str(line["baseline_calibrator"]),
        ours=float(line["mean"]),
        theirs=float(line["baseline_mean"]),
        difference=float(line["difference"]),
        low=float(line["low"]),
        high=float(line["high"]),
        pairs=int(line["pairs"]),
        verdict=str(line["verdict"]),
        would_decide=str(line.get("would_decide") or ""),
    )


def _runner_up(selection: Selection, dataset: str) -> RunnerUp | None:
    if dataset not in selection.runners_up:
        return None
    (row, calibrator), standing = selection.runners_up[dataset]
    return RunnerUp(row, calibrator, standing)


def _serving(selection: Selection) -> tuple[str, int]:
    """The candidate tied with the best on most datasets; among equals a winner, then the first."""
    counts: Counter[Candidate] = Counter()
    for (_, row, calibrator), standing in selection.standings.items():
        counts[row, calibrator] += standing.tied
    if not counts:
        return "", 0
    winners = set(selection.winners.values())
    most = max(counts, key=lambda candidate: (counts[candidate], candidate in winners))
    return label(*most), counts[most]


def _entry(advice: Advice) -> dict[str, Any]:
    whole = {"dataset": advice.dataset, "sentence": advice.sentence, "details": advice.details}
    return whole | asdict(advice)


def _finite(value: Any) -> Any:
    """A JSON value: None for a number that is not finite."""
    if isinstance(value, Standing):
        return _finite(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
