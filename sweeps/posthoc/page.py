"""The page of stored predictions."""

from __future__ import annotations

from typing import Any

import torch

from sweeps.analysis.results import label
from sweeps.posthoc.evaluation import METHOD, StoredEvaluation
from sweeps.posthoc.sections import posthoc_page
from sweeps.posthoc.wording import FLATTERED, procedure
from sweeps.report.wording import number


def evaluation_page(evaluation: StoredEvaluation) -> str:
    """One HTML file: what was found in words, the leaderboard, and diagrams of every calibrator."""
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
        [*_findings(evaluation), *evaluation.notes],
        evaluation.bins,
    )


def _findings(evaluation: StoredEvaluation) -> list[str]:
    rows = evaluation.leaderboard.set_index("calibrator")
    plain: Any = rows.loc["identity"]
    winner = evaluation.winner
    fitted, measured = evaluation.rows
    how = (
        f"{fitted} rows, each judged by calibrators fitted without it"
        if evaluation.cross_fitted
        else f"calibrators fitted on {fitted} rows and measured on {measured} others"
    )
    as_is = f"ECE {number(plain['ece'])} and NLL {number(plain['nll'])}"
    said = [
        f"{how[0].upper()}{how[1:]} ({procedure(evaluation)}). As they are, the predictions have "
        f"{as_is}."
    ]
    if evaluation.cross_fitted:
        said.append(f"{FLATTERED[0].upper()}{FLATTERED[1:]}.")
    if winner == "identity":
        return [
            *said,
            "No calibrator has a lower cross-fitted validation NLL: use them as they are.",
        ]
    best: Any = rows.loc[winner]
    said.append(
        f"{winner}, chosen by cross-fitted validation NLL, has ECE {number(best['ece'])}, where "
        f"perfect calibration would read {number(best['floor'])} by chance, and NLL "
        f"{number(best['nll'])}; against none: {evaluation.verdict(winner, 'ece')} in ECE, "
        f"{evaluation.verdict(winner, 'nll')} in NLL, {evaluation.verdict(winner, 'error')} in "
        "error (paired bootstrap, Holm-corrected)."
    )
    return said
