"""All calibrators on stored predictions: a tidy table, a winner, a verdict for each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from calibration.calibrators import Calibrator
from calibration.data.predictions import StoredPredictions, check_both
from calibration.evaluation import LabelledLogits
from calibration.memory import COPIES, available_memory, check_fits
from calibration.metrics.bootstrap import CLASSWISE_ELEMENTS, resample_counts
from calibration.metrics.class_view import ClassView
from calibration.metrics.rare import class_shares
from calibration.row_notes import notes_on_groups, notes_on_weights
from calibration.text import visible
from calibration.threads import threads
from sweeps.analysis.results import leaderboard
from sweeps.analysis.selection import select
from sweeps.analysis.verdicts import UNMEASURED
from sweeps.posthoc.comparison import UNCALIBRATED, comparisons
from sweeps.posthoc.verdicts import (
    EvaluationSetup,
    Judged,
    folds_for,
    judge,
    resamples_for,
)
from sweeps.report.blindness import blind_sentences
from sweeps.report.wording import listed

METHOD = "predictions"


@dataclass(frozen=True)
class StoredEvaluation:
    """Calibrators on stored predictions.

    ``results`` has one row per calibrator, with the columns that a sweep's results have;
    ``leaderboard`` is ordered by cross-fitted validation NLL and marks the ``winner``;
    ``comparisons`` are with the uncalibrated predictions; ``confidences`` gives (confidence,
    correct) of the measured rows for each calibrator, ``classes`` each class's; ``failed`` the
    calibrators that raised, with the reason. ``cross_fitted`` says that there was no test file;
    ``folds`` is the number of folds of the validation rows, ``resamples`` that of the bootstrap
    resamples of the measured rows. ``fitted_shares`` and ``measured_shares`` are the classes'
    shares of the rows fitted and measured on, ``score`` the declared meaning of a single score.
    ``groups`` (N,) are those of the measured rows, None if they belong to none; ``weighted`` says
    that rows have weights, ``roles`` where both came from.
    """

    name: str
    bins: int
    seed: int
    rows: tuple[int, int]
    cross_fitted: bool
    folds: int
    resamples: int
    results: pd.DataFrame
    leaderboard: pd.DataFrame
    comparisons: pd.DataFrame
    calibrators: dict[str, Calibrator]
    confidences: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]
    classes: dict[str, ClassView]
    class_names: tuple[str, ...]
    fitted_shares: tuple[float, ...]
    measured_shares: tuple[float, ...]
    score: dict[str, str] | None
    failed: dict[str, str]
    notes: tuple[str, ...]
    groups: NDArray[np.int64] | None = None
    weighted: bool = False
    roles: Mapping[str, str] = field(default_factory=dict)

    @property
    def winner(self) -> str:
        """The calibrator with the lowest cross-fitted validation NLL."""
        return str(self.leaderboard.loc[self.leaderboard["winner"], "calibrator"].iloc[0])

    @property
    def blindness(self) -> str:
        """A warning that top-label ECE is blind, with the winner's other metrics; or ""."""
        chosen = self.leaderboard[self.leaderboard["winner"]].iloc[0]
        row = {str(column): value for column, value in chosen.items()}
        name = "as they are, the predictions" if self.winner == UNCALIBRATED else self.winner
        return blind_sentences(self.measured_shares, self.class_names, row, name)

    def verdict(self, calibrator: str, metric: str) -> str:
        """The verdict on a calibrator against none; "not measured" if it has no such metric."""
        table = self.comparisons
        found = table[(table["calibrator"] == calibrator) & (table["metric"] == metric)]
        return UNMEASURED if found.empty else str(found["verdict"].iloc[0])


def evaluate_stored(
    validation: StoredPredictions,
    test: StoredPredictions | None,
    calibrators: Sequence[str],
    *,
    bins: int = 15,
    seed: int = 0,
    workers: int | None = None,
) -> StoredEvaluation:
    """Fit ``calibrators`` on ``validation`` and measure them on ``test``.

    Without ``test`` every row is measured by calibrators fitted on the folds without it.
    ``identity``, the uncalibrated predictions, is always included. Groups of rows are kept together
    when they are cross-fitted and resampled; weights count wherever they can. ``workers``
    calibrators run at a time, by default one per core. A calibrator that raises is among the
    ``failed``. Raises ``ValueError`` if the two sets do not match, or if the uncalibrated
    predictions cannot be evaluated.
    """
    if test is not None:
        check_both(validation, test, validation.name, test.name)
    setting = EvaluationSetup(
        _predictions(validation),
        None if test is None else _predictions(test),
        bins=bins,
        seed=seed,
        resamples=resamples_for(len((test or validation).logits)),
        folds=folds_for(len(validation.logits)),
    )
    names = list(dict.fromkeys([UNCALIBRATED, *calibrators]))
    judged, failed = _judged(names, setting, _workers(setting, workers or os.cpu_count() or 1))
    # A file's name need not be text, and a table holds nothing else.
    name = visible((test or validation).name, keep="")
    rows = len(setting.measured.labels)
    tidy = pd.DataFrame(
        {"dataset": name, "row": METHOD, "calibrator": calibrator, "seed": seed} | found.row
        for calibrator, found in judged.items()
    )
    resampled = {calibrator: found.resampled for calibrator, found in judged.items()}
    return StoredEvaluation(
        name=name,
        bins=bins,
        seed=seed,
        rows=(len(setting.validation.labels), rows),
        cross_fitted=test is None,
        folds=setting.folds,
        resamples=setting.resamples,
        results=tidy,
        leaderboard=leaderboard(tidy, select(tidy)),
        comparisons=comparisons(resampled, name, METHOD, rows, setting.groups),
        calibrators={calibrator: found.calibrator for calibrator, found in judged.items()},
        confidences={
            calibrator: (found.confidence.numpy(), found.correct.numpy())
            for calibrator, found in judged.items()
        },
        classes={
            calibrator: found.classes
            for calibrator, found in judged.items()
            if found.classes is not None
        },
        class_names=validation.class_names,
        fitted_shares=_shares(setting.validation),
        measured_shares=_shares(setting.measured),
        score=validation.score,
        failed=failed,
        notes=notes_on(validation, test, names),
        groups=None if setting.measured.groups is None else setting.measured.groups.numpy(),
        weighted=validation.weights is not None,
        roles=validation.roles,
    )


def _shares(rows: LabelledLogits) -> tuple[float, ...]:
    return tuple(class_shares(rows.labels, rows.logits.shape[1], rows.weights))


def _workers(setting: EvaluationSetup, wanted: int) -> int:
    """As many calibrators at a time as fit into memory. Raises ``ValueError`` if none does.

    Most memory goes to the resampled class-wise ECE, a number for each bin of many classes, and
    to a few copies of the probabilities.
    """
    rows, classes = setting.measured.logits.shape
    gaps = min(setting.resamples * setting.bins * classes, CLASSWISE_ELEMENTS)
    of_one = 8 * (2 * gaps + 4 * rows * classes)
    check_fits(of_one, f"a calibrator of {rows} × {classes} with {setting.bins} bins takes")
    return max(1, min(wanted, available_memory() // (COPIES * of_one)))


def notes_on(
    validation: StoredPredictions, test: StoredPredictions | None, calibrators: Sequence[str]
) -> tuple[str, ...]:
    """The notes of the files' readers, on groups and weights, and on classes without rows to fit.

    ``calibrators`` are those that are fitted.
    """
    notes = [*validation.notes, *(() if test is None else test.notes)]
    measured = test or validation
    if measured.groups is not None:
        notes += notes_on_groups(len(np.unique(measured.groups)), "the measured rows")
    if validation.weights is not None:
        notes += notes_on_weights("in what is fitted and measured", calibrators)
    there = set() if validation.labels is None else set(validation.labels.tolist())
    absent = [name for k, name in enumerate(validation.class_names) if k not in there]
    if absent:
        one = len(absent) == 1
        notes.append(
            f"{validation.name}: no validation row is of the class{'' if one else 'es'} "
            f"{listed(absent)}; calibrators with a parameter per class learn never to predict "
            f"{'it' if one else 'them'}"
        )
    return tuple(notes)


def _predictions(stored: StoredPredictions) -> LabelledLogits:
    if stored.labels is None:
        raise ValueError(f"{stored.name}: no labels")
    groups = weights = None
    if stored.groups is not None:
        groups = torch.from_numpy(pd.factorize(stored.groups)[0])
    if stored.weights is not None:
        weights = torch.from_numpy(stored.weights)
    return LabelledLogits(
        torch.from_numpy(stored.logits).double(),  # once for all calibrators, which work in it
        torch.from_numpy(stored.labels),
        groups=groups,
        weights=weights,
    )


def _judged(
    names: Sequence[str], setting: EvaluationSetup, workers: int
) -> tuple[dict[str, Judged], dict[str, str]]:
    # Drawn before the threads start, or each would draw the same ones.
    units = setting.groups or len(setting.measured.labels)
    resample_counts(units, setting.resamples, setting.seed)
    judged: dict[str, Judged] = {}
    failed: dict[str, str] = {}
    # Threads, not processes: numpy and torch release the GIL while they work.
    with threads(1), ThreadPoolExecutor(workers) as pool:
        tasks = {name: pool.submit(judge, name, setting) for name in names}
        for name, task in tasks.items():
            try:
                judged[name] = task.result()
            except Exception as error:  # one calibrator's failure must not cost the others' results
                failed[name] = f"{type(error).__name__}: {error}"
    if UNCALIBRATED not in judged:
        raise ValueError(f"the predictions cannot be evaluated: {failed[UNCALIBRATED]}")
    return judged, failed
