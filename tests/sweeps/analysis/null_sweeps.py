"""Sweeps whose rows do not differ, to count what a report claims of them all the same.

A *pool* holds networks that were never trained: logits drawn from one distribution for all
of them, each seen through every calibrator. A sweep is drawn from it without training
anything: some draws of data are its seeds, and every row gets another network of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from calibration import calibrators
from calibration.evaluation import LabelledLogits, cross_fitted, predictions_of, scores
from calibration.metrics import METRICS, Shown
from sweeps.analysis import Baseline
from sweeps.analysis.comparisons import compare
from sweeps.analysis.results import leaderboard
from sweeps.analysis.selection import CHOSEN_BY, select
from sweeps.report.headline import Headline, headline
from tests.sweeps.report.analyses import analysis

CLASSES, VALIDATION_ROWS, TEST_ROWS, BINS = 3, 200, 300, 15
DATASET = "null"
ROWS = ("standard", "focal", "mixup", "brier", "mmce")


def pool(
    draws: int, networks: int, calibrators: Sequence[str], *, signal: float, seed: int = 0
) -> pd.DataFrame:
    """A line per draw of data, network and calibrator, with what is chosen by and compared.

    The labels follow the softmax of logits with the deviation ``signal``: with 0 they are
    pure noise. The networks see these logits, and noise that is partly their own, and are
    over-confident.
    """
    generator = torch.Generator().manual_seed(seed)
    lines = []
    for draw in range(draws):
        rows = (VALIDATION_ROWS + TEST_ROWS, CLASSES)
        truth = signal * torch.randn(rows, generator=generator)
        labels = torch.multinomial(truth.softmax(-1), 1, generator=generator).squeeze(1)
        shared = torch.randn(rows, generator=generator)
        for network in range(networks):
            own = torch.randn(rows, generator=generator)
            logits = 1.8 * (truth + 0.6 * shared + 0.6 * own)
            parts = [
                LabelledLogits(logits[part], labels[part])
                for part in (slice(VALIDATION_ROWS), slice(VALIDATION_ROWS, None))
            ]
            lines += [
                {"draw": draw, "network": network, "calibrator": name}
                | _measured(name, *parts, draw)
                for name in calibrators
            ]
    return pd.DataFrame(lines)


def _measured(
    name: str, validation: LabelledLogits, test: LabelledLogits, seed: int
) -> dict[str, float]:
    """As ``evaluate_calibrator`` does, without the intervals, which nothing here reads."""

    def scored(output: Tensor, of: LabelledLogits, only: Sequence[str]) -> dict[str, float]:
        return scores(predictions_of(output, of), bins=BINS, only=only)

    fitted = calibrators.fit(name, validation.logits, validation.labels)
    held_back = cross_fitted(name, validation.logits, validation.labels, seed=seed)
    nll = scored(held_back, validation, ("nll",)).get("nll", np.nan)
    return scored(fitted(test.logits), test, METRICS.names(Shown.LEADERBOARD)) | {CHOSEN_BY: nll}


def drawn(
    pool: pd.DataFrame,
    rng: np.random.Generator,
    seeds: int = 5,
    gains: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """The tidy results of a sweep whose rows are alike, but for ``gains``.

    A gain is taken off every metric of a row, in test and validation.
    """
    networks = pool["network"].nunique()
    pieces = []
    for seed, draw in enumerate(rng.choice(pool["draw"].unique(), seeds, replace=False)):
        who = dict(zip(rng.permutation(networks), ROWS, strict=False))
        lines = pool[pool["draw"] == draw].assign(dataset=DATASET, seed=seed, train_seconds=1.0)
        pieces.append(lines.assign(row=lines["network"].map(who)).dropna(subset="row"))
    found = pd.concat(pieces, ignore_index=True)
    for row, gain in (gains or {}).items():
        found.loc[found["row"] == row, [*METRICS.names(Shown.LEADERBOARD), CHOSEN_BY]] -= gain
    found = found.assign(floor=0.02, floor_q95=0.03, converged=True)
    return found.sort_values("row", key=lambda m: m.map(ROWS.index), kind="stable")


def headline_of(tidy: pd.DataFrame, baseline: Baseline = Baseline(ROWS[0])) -> Headline:  # noqa: B008
    """What the report says of these results."""
    chosen = select(tidy)
    compared = compare(tidy, chosen.calibrators, baseline)
    found = analysis(
        [],
        compared.to_dict("records"),
        results=tidy,
        leaderboard=leaderboard(tidy, chosen),
        selection=chosen,
        baseline=baseline,
    )
    about = {"methods": ROWS, "seeds": tidy["seed"].nunique(), "test_rows": TEST_ROWS}
    return headline(DATASET, found, own_draws=True, **about)


def claims(told: Headline) -> tuple[bool, bool]:
    """Whether a headline calls anything better, and whether anything better or worse."""
    good = re.search(r"\bbetter\b|\bmore accurate\b", str(told)) is not None
    bad = re.search(r"\bworse\b|\bless accurate\b", str(told)) is not None
    return good, good or bad
