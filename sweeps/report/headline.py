"""The outcome of a sweep in a few sentences, each derived from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from calibration.metrics import METRICS
from sweeps.analysis import Analysis
from sweeps.analysis.comparisons import CHOSEN, claimed
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import label
from sweeps.analysis.selection import FEWER_SEEDS
from sweeps.analysis.statistics import SPENT, protected
from sweeps.analysis.verdicts import (
    BASELINE,
    EQUIVALENT,
    SHOWN_BETTER,
    SHOWN_WORSE,
    TOO_FEW,
    UNDECIDED,
    UNMEASURED,
    UNRECORDED,
)
from sweeps.report.chance import like_perfect, most_by_chance
from sweeps.report.wording import count, interval, listed, number, p_value, quoted
from sweeps.spec import ORACLE

DIFFERENT = (SHOWN_BETTER, SHOWN_WORSE)


class Headline(NamedTuple):
    """The outcome on one dataset: the chosen row, then the others."""

    lead: str
    others: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, [self.lead, self.others]))


def headlines(sweep: SweepRecords, analysis: Analysis) -> dict[str, Headline]:
    """A few sentences on every dataset, in plain text."""
    found = {}
    for name, dataset in sweep.loaded.datasets.items():
        found[name] = headline(
            name,
            analysis,
            methods=list(sweep.spec.methods),
            seeds=sweep.spec.confirm_seeds,
            test_rows=len(dataset.test(sweep.spec.seed + 1).labels),
            own_draws=dataset.independent_draws,
        )
    return found


def headline(
    dataset: str,
    analysis: Analysis,
    *,
    methods: Sequence[str],
    seeds: int,
    test_rows: int,
    own_draws: bool,
) -> Headline:
    """The chosen row against chance and the baseline, the other methods, and failures.

    ``methods`` are all rows of the spec, ``seeds`` the planned confirm seeds of each,
    ``test_rows`` is the size of one test set, ``own_draws`` whether every seed has its own.
    """
    rows = _of(analysis.leaderboard, dataset)
    trained = rows if rows.empty else rows[rows["row"] != ORACLE]
    if trained.empty:
        return Headline(
            f"On {dataset}, no trained network has been confirmed: there is nothing to compare."
        )
    winners = trained[trained["winner"]]
    if winners.empty:
        lead = f"On {dataset}, no row was chosen: none has a validation NLL on all seeds."
    else:
        winner = winners.iloc[0]
        lead = _winner(dataset, winner, analysis, len(trained) > 1, test_rows, own_draws)
        lead = f"{lead} {_against_baseline(dataset, winner, analysis)}"
    others = [
        _others(dataset, winners, analysis),
        _failures(dataset, trained, analysis, methods, seeds),
    ]
    return Headline(lead, " ".join(filter(None, others)))


def recommended(analysis: Analysis) -> list[str]:
    """What to use: the answer, and for every dataset the reason, the runner-up and caveats."""
    found = analysis.recommendation
    each = [" ".join(filter(None, [a.sentence, a.details])) for a in found.datasets]
    return each if len(each) < 2 else [found.sentence, *each]


def outdated(sweep: SweepRecords, analysis: Analysis) -> str:
    """A note that some numbers come from other versions, and how to renew them; or ""."""
    if not analysis.outdated:
        return ""
    made = count(analysis.outdated, "evaluation")
    return (
        f"{made} of {len(analysis.results)} {'was' if analysis.outdated == 1 else 'were'} made by "
        "another version of a metric or a calibrator: run the sweep "
        f"{quoted(sweep.spec.name)} again to re-evaluate the stored predictions; nothing is "
        "trained again."
    )


def looks(sweep: SweepRecords) -> str:
    """How often growing results were looked at, if that affects the verdicts."""
    if sweep.look == 1:
        return ""
    if protected(sweep.look):
        return (
            f"This is look {sweep.look} at a growing number of seeds: p-values are corrected for "
            f"up to {len(SPENT)} looks, so that all of them together err with at most 5 %."
        )
    return (
        f"This is look {sweep.look} at a growing number of seeds, and the 5 % was spent on the "
        f"first {len(SPENT)}: its verdicts are no longer protected. Run the sweep under another "
        "name and seed for a fresh start."
    )


def across(analysis: Analysis, metric: str = "nll") -> str:
    """The ranks over several datasets in a sentence; "" if there are none."""
    ranks = analysis.ranks.get(metric)
    if ranks is None:
        return ""
    best = str(ranks.average.index[0])
    first = [str(name) for name, rank in ranks.average.items() if rank == ranks.average.iloc[0]]
    has = "has" if len(first) == 1 else "share"
    best_rank = (
        f"Over {ranks.datasets} datasets, {listed(first)} {has} the best mean rank in "
        f"{METRICS.title(metric)}: {ranks.average.iloc[0]:.2f} among {len(ranks.average)} rows"
    )
    if math.isnan(ranks.friedman_p) or ranks.friedman_p >= 0.05:
        tested = p_value(ranks.friedman_p)
        return (
            f"{best_rank}; but the ranks differ no more than chance explains (Friedman {tested})."
        )
    group = next((g for g in ranks.groups if best in g), ())
    beaten = [str(m) for m in ranks.average.index if m != best and m not in group]
    if not beaten:
        return f"{best_rank}; it does not differ significantly from any other method (Nemenyi)."
    return f"{best_rank}; it differs significantly from {listed(beaten)} (Nemenyi)."


def _of(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    return table if table.empty else table[table["dataset"] == dataset]


def _winner(
    dataset: str,
    winner: pd.Series,
    analysis: Analysis,
    was_choice: bool,
    test_rows: int,
    own_draws: bool,
) -> str:
    name = quoted(label(winner["row"], winner["calibrator"]))
    chosen = ", chosen on validation data," if was_choice else ""
    ece = " ".join(filter(None, [number(winner["ece"]), interval(winner, "ece")]))
    result = f"On {dataset}, {name}{chosen} has ECE {ece}"
    if math.isnan(winner["floor"]):
        return f"{result}."
    tidy = _of(analysis.results, dataset)
    mine = (tidy["row"] == winner["row"]) & (tidy["calibrator"] == winner["calibrator"])
    seeds = tidy[mine]
    where = count(test_rows, "test point")
    if own_draws and len(seeds) > 1:
        where = f"{len(seeds)} × {where}"
    by_chance = f"{result} where perfect calibration would read {number(winner['floor'])} by chance"
    if like_perfect(seeds, own_draws):
        return f"{by_chance}: it cannot be distinguished from perfectly calibrated on {where}."
    most = number(most_by_chance(seeds, own_draws))
    return (
        f"{by_chance} and less than {most} in 95 of 100 cases: it is not perfectly calibrated, "
        f"on {where}."
    )


def _against_baseline(dataset: str, winner: pd.Series, analysis: Analysis) -> str:
    found, baseline = _claims(dataset, analysis)
    mine = found[found["row"] == winner["row"]]
    by_metric = {str(line["metric"]): line for _, line in mine.iterrows()}
    if not by_metric.keys() >= set(claimed()):
        return f"It cannot be compared with {baseline}."
    if by_metric["ece"]["verdict"] == BASELINE:
        return "It is the baseline itself."
    if by_metric["ece"]["verdict"] == TOO_FEW:
        pairs = count(int(by_metric["ece"]["pairs"]), "seed")
        return f"With {pairs} in common, no difference from {baseline} can be tested."
    if by_metric["ece"]["verdict"] == UNRECORDED:
        return (
            f"Too little is recorded to compare it with {baseline} for new data: run the sweep "
            "again, which re-evaluates the stored predictions and trains nothing."
        )
    calibration = _calibration(by_metric["ece"], by_metric["nll"])
    return f"Compared with {baseline}: {calibration}, {_accuracy(by_metric['error'])}."


def _claims(dataset: str, analysis: Analysis) -> tuple[pd.DataFrame, str]:
    """The comparisons of the chosen row, the only ones in a headline, and their baseline."""
    found = _of(analysis.comparisons, dataset)
    found = found[found["comparison"] == CHOSEN]
    chosen = {r: c for (where, r), c in analysis.selection.calibrators.items() if where == dataset}
    return found, quoted(label(*analysis.baseline.chosen(chosen)))


def _calibration(ece: pd.Series, nll: pd.Series) -> str:
    if nll["verdict"] == UNMEASURED:
        return f"{ece['verdict']} in ECE{_tested(ece)}"
    if ece["verdict"] == nll["verdict"]:
        return f"{ece['verdict']} in ECE{_tested(ece)} and NLL{_tested(nll)}"
    return f"{ece['verdict']} in ECE{_tested(ece)}, {nll['verdict']} in NLL{_tested(nll)}"


def _accuracy(error: pd.Series) -> str:
    if error["verdict"] in DIFFERENT:
        word = "more" if error["verdict"] == "better" else "less"
        values = f"error {number(error['mean'])} against {number(error['baseline_mean'])}"
        p = p_value(error["p_holm"])
        return f"{word} accurate ({', '.join(filter(None, [values, p]))})"
    same = error["difference"] == 0 and error["low"] == error["high"]
    if same or error["verdict"] == EQUIVALENT:
        return "the same accuracy" if same else f"equivalent in accuracy{_tested(error)}"
    return f"{error['verdict']} in accuracy"


def _tested(line: pd.Series) -> str:
    if math.isinf(line["mean"]) or math.isinf(line["baseline_mean"]):
        return f" ({number(line['mean'])} against {number(line['baseline_mean'])})"
    p = p_value(line["p_holm"])
    return f" ({p})" if p else ""


def _others(dataset: str, winners: pd.DataFrame, analysis: Analysis) -> str:
    """The other methods' verdicts: all of them in ECE, only decided ones in NLL and error."""
    found, baseline = _claims(dataset, analysis)
    found = found[~found["row"].isin(winners["row"])]
    first, *further = claimed()
    decided = (SHOWN_BETTER, EQUIVALENT, SHOWN_WORSE)
    shown = {first: (*decided, UNDECIDED)} | dict.fromkeys(further, decided)
    parts = [
        f"in {METRICS.title(metric)}: {verdicts_text}"
        for metric, verdicts in shown.items()
        if (verdicts_text := _by_verdict(found[found["metric"] == metric], verdicts))
    ]
    if not parts:
        return ""
    begin, *more = (f"{part}." for part in parts)
    return " ".join([f"The others against {baseline}, {begin}", *map(_begun, more)])


def _begun(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _by_verdict(lines: pd.DataFrame, verdicts: Sequence[str]) -> str:
    groups = []
    for verdict in verdicts:
        these = lines[lines["verdict"] == verdict]
        names = [label(m, p) for m, p in zip(these["row"], these["calibrator"], strict=True)]
        groups += [f"{listed(names)}: {verdict}"] if names else []
    return "; ".join(groups)


def _failures(
    dataset: str, trained: pd.DataFrame, analysis: Analysis, methods: Sequence[str], planned: int
) -> str:
    sentences = []
    missing = [name for name in methods if name not in set(trained["row"])]
    if missing:
        sentences.append(f"No result for {listed(missing)}.")
    fewer = trained.groupby("row", sort=False)["seeds"].max()
    for method, seeds in fewer[fewer < planned].items():
        sentences.append(
            f"{quoted(str(method))} has results on only {seeds} of {planned} seeds"
            + (" and cannot win." if (dataset, method) in analysis.selection.cannot_win else ".")
        )
    failed = [
        label(row, calibrator)
        for (where, row, calibrator), reason in analysis.selection.ineligible.items()
        if where == dataset and reason == FEWER_SEEDS
    ]
    if failed:
        sentences.append(f"Without a result on some seeds, hence never chosen: {listed(failed)}.")
    return " ".join(sentences)
