"""The page of stored predictions: calibrators side by side, nothing trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from calibration.metrics.class_view import ClassView
from calibration.text import count
from sweeps.analysis.results import label
from sweeps.posthoc.evaluation import METHOD, StoredEvaluation
from sweeps.posthoc.wording import FLATTERED, procedure
from sweeps.report.attempts import Attempts
from sweeps.report.chart import looks
from sweeps.report.document import PageBudget, PagePart, document
from sweeps.report.leaderboard_table import RowVerdict, leaderboard_table
from sweeps.report.section import DrawnPredictions
from sweeps.report.sections.bins import bins_and_abstention
from sweeps.report.sections.classes import class_reliability
from sweeps.report.sections.reliability import reliability_diagrams, remarks_on
from sweeps.report.templates import NOTHING, macro
from sweeps.report.wording import number


def evaluation_page(evaluation: StoredEvaluation) -> str:
    """One HTML file: the findings, the leaderboard, and diagrams of every calibrator."""
    named = {calibrator: label(METHOD, calibrator) for calibrator in evaluation.confidences}
    return posthoc_page(
        evaluation.name,
        evaluation.results,
        evaluation.leaderboard,
        {
            named[calibrator]: (torch.from_numpy(confidence), torch.from_numpy(correct))
            for calibrator, (confidence, correct) in evaluation.confidences.items()
        },
        {named[calibrator]: evaluation.verdict(calibrator, "ece") for calibrator in named},
        [*_findings(evaluation), *filter(None, [evaluation.blindness]), *evaluation.notes],
        evaluation.bins,
        {named[calibrator]: view for calibrator, view in evaluation.classes.items()},
        evaluation.class_names,
        None if evaluation.groups is None else torch.from_numpy(evaluation.groups),
        weighted=evaluation.weighted,
    )


def posthoc_page(
    title: str,
    tidy: pd.DataFrame,
    leaderboard: pd.DataFrame,
    shown: DrawnPredictions,
    verdicts: Mapping[str, str],
    notes: Sequence[str],
    bins: int,
    classes: Mapping[str, ClassView] | None = None,
    class_names: Sequence[str] = (),
    groups: Tensor | None = None,
    *,
    weighted: bool = False,
) -> str:
    """One HTML file on the calibrators that were tried on stored predictions.

    ``leaderboard`` has a row per calibrator, best first, as a sweep's has; ``tidy`` the same with
    bootstrap intervals (METRIC_low, METRIC_high), used if the leaderboard has none of its own.
    ``shown`` holds (confidence, correct) by the row's name, ``verdicts`` those of a row against
    the uncalibrated predictions, ``notes`` sentences for the top of the page, ``classes`` each
    class's reliability by the row's name. A table or chart that cannot be made is logged and
    named; the others are still shown.
    """
    room, attempts = PageBudget(), Attempts()
    rows = _with_intervals(leaderboard, tidy)
    names = {label(m, p): (m, p) for m, p in zip(rows["row"], rows["calibrator"], strict=True)}
    found = {
        (*names[name], "ece"): RowVerdict(words)
        for name, words in verdicts.items()
        if name in names
    }
    # There is one method: here colours distinguish the calibrators.
    styles = looks(((name, "identity") for name in names), names)
    named = {name: styles[name, "identity"] for name in shown}
    seeds = int(rows["seeds"].max())
    top = room.take(macro("posthoc", "summary")(notes, bins))
    leading = attempts.part(
        "the leaderboard of the page",
        lambda: room.take(
            macro("posthoc", "leaderboard")(
                leaderboard_table(title, rows, rows, found, "no calibrator", seeds)
            )
        ),
        NOTHING,
    )
    diagrams = attempts.part(
        "the reliability diagrams",
        lambda: reliability_diagrams(
            *(room, shown, bins, " ".join(remarks_on(groups is not None, weighted))),
            "figures/predictions",
            dict.fromkeys(shown, groups),
        ),
        NOTHING,
    )
    won = rows[rows["winner"]] if "winner" in rows else rows
    best = label(METHOD, str(won["calibrator"].iloc[0])) if len(won) else ""
    diagrams += attempts.part(
        "the diagrams of classes",
        lambda: class_reliability(room, classes or {}, class_names, best),
        NOTHING,
    )
    diagrams += attempts.part(
        "the charts of bins and abstention",
        lambda: bins_and_abstention(room, shown, named, "figures"),
        NOTHING,
    )
    parts = [
        PagePart("summary", "Summary", top),
        PagePart("leaderboard", "Leaderboard", leading),
        PagePart("diagrams", "Diagrams", macro("posthoc", "diagrams")(diagrams)),
    ]
    return document(f"{title} · calsweep", title, parts, room, attempts.failures)


def _findings(evaluation: StoredEvaluation) -> list[str]:
    rows = evaluation.leaderboard.set_index("calibrator")
    plain: Any = rows.loc["identity"]
    winner = evaluation.winner
    fitted, measured = evaluation.rows
    how = (
        f"{count(fitted, 'row')}, each judged by calibrators fitted without it"
        if evaluation.cross_fitted
        else f"calibrators fitted on {count(fitted, 'row')} and measured on {measured} others"
    )
    as_is = f"ECE {number(plain['ece'])} and NLL {number(plain['nll'])}"
    sentences = [
        f"{how[0].upper()}{how[1:]} ({procedure(evaluation)}). As they are, the predictions have "
        f"{as_is}."
    ]
    if evaluation.cross_fitted:
        sentences.append(f"{FLATTERED[0].upper()}{FLATTERED[1:]}.")
    if winner == "identity":
        return [
            *sentences,
            "No calibrator has a lower cross-fitted validation NLL: use them as they are.",
        ]
    best: Any = rows.loc[winner]
    sentences.append(
        f"{winner}, chosen by cross-fitted validation NLL, has ECE {number(best['ece'])}, where "
        f"perfect calibration would read {number(best['floor'])} by chance, and NLL "
        f"{number(best['nll'])}; against none: {evaluation.verdict(winner, 'ece')} in ECE, "
        f"{evaluation.verdict(winner, 'nll')} in NLL, {evaluation.verdict(winner, 'error')} in "
        "error (paired bootstrap, Holm-corrected)."
    )
    return sentences


def _with_intervals(leaderboard: pd.DataFrame, tidy: pd.DataFrame) -> pd.DataFrame:
    """The bootstrap intervals under the column names of a sweep's leaderboard."""
    rows = leaderboard.reset_index(drop=True).copy()
    keys = ["dataset", "row", "calibrator"]
    once = tidy.drop_duplicates(keys).set_index(keys)
    index = pd.MultiIndex.from_frame(rows[keys])
    for end in ("low", "high"):
        for column in [c for c in tidy if str(c).endswith(f"_{end}")]:
            name = f"{str(column).removesuffix(f'_{end}')}_ci_{end}"
            if name not in rows:
                rows[name] = once[column].reindex(index).to_numpy()
    return rows
