"""All maps on stored predictions: a tidy table, a winner, and a verdict for each map."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from calibration.calibrators import Calibrator
from calibration.data.predictions import StoredPredictions, check_same_classes
from calibration.evaluation import LabelledLogits
from calibration.memory import COPIES, available_memory, check_fits
from calibration.metrics.bootstrap import resample_counts
from calibration.text import visible
from calibration.threads import threads
from sweeps.analysis.comparisons import UNMEASURED
from sweeps.analysis.results import leaderboard
from sweeps.analysis.selection import select
from sweeps.posthoc.comparison import UNCALIBRATED, comparisons
from sweeps.posthoc.verdicts import (
    EvaluationSetup,
    Judged,
    folds_for,
    judge,
    resamples_for,
)
from sweeps.report.wording import listed

METHOD = "predictions"


@dataclass(frozen=True)
class StoredEvaluation:
    """Post-hoc maps on stored predictions.

    ``results`` has one row per map, with the columns that a sweep's results have;
    ``leaderboard`` is ordered by cross-fitted validation NLL and marks the ``winner``;
    ``comparisons`` are with the predictions as they are; ``confidences`` gives (confidence,
    correct) of the measured rows for each map; ``failed`` the maps that raised, with the
    reason. ``cross_fitted`` says that there was no test file; ``folds`` is how many the
    validation rows were cut into, ``resamples`` how often the measured rows were drawn again.
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
    maps: dict[str, Calibrator]
    confidences: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]
    class_names: tuple[str, ...]
    failed: dict[str, str]
    notes: tuple[str, ...]

    @property
    def winner(self) -> str:
        """The map of least cross-fitted validation NLL."""
        return str(self.leaderboard.loc[self.leaderboard["winner"], "post_hoc"].iloc[0])

    def verdict(self, post_hoc: str, metric: str) -> str:
        """What is shown of a map against none; "not measured" where it has no such metric."""
        table = self.comparisons
        found = table[(table["post_hoc"] == post_hoc) & (table["metric"] == metric)]
        return UNMEASURED if found.empty else str(found["verdict"].iloc[0])


def evaluate_stored(
    validation: StoredPredictions,
    test: StoredPredictions | None,
    maps: Sequence[str],
    *,
    bins: int = 15,
    seed: int = 0,
    workers: int | None = None,
) -> StoredEvaluation:
    """Fit ``maps`` on ``validation`` and measure them on ``test``.

    Without ``test`` every row is measured by maps fitted on the folds that do not hold it.
    ``identity``, the predictions as they are, always takes part. ``workers`` maps at a time,
    by default one per core. Raises ``ValueError`` if the two sets do not fit together, and
    if every map fails.
    """
    if test is not None:
        check_same_classes(validation, test, validation.name, test.name)
    setting = EvaluationSetup(
        _predictions(validation),
        None if test is None else _predictions(test),
        bins=bins,
        seed=seed,
        resamples=resamples_for(len((test or validation).logits)),
        folds=folds_for(len(validation.logits)),
    )
    names = list(dict.fromkeys([UNCALIBRATED, *maps]))
    judged, failed = _judged(names, setting, _workers(setting, workers or os.cpu_count() or 1))
    # A file's name need not be text, and a table holds nothing else.
    name = visible((test or validation).name, keep="")
    rows = len(setting.measured.labels)
    tidy = pd.DataFrame(
        {"dataset": name, "method": METHOD, "post_hoc": post_hoc, "seed": seed} | found.row
        for post_hoc, found in judged.items()
    )
    resampled = {post_hoc: found.resampled for post_hoc, found in judged.items()}
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
        comparisons=comparisons(resampled, name, METHOD, rows),
        maps={post_hoc: found.calibrator for post_hoc, found in judged.items()},
        confidences={
            post_hoc: (found.confidence.numpy(), found.correct.numpy())
            for post_hoc, found in judged.items()
        },
        class_names=validation.class_names,
        failed=failed,
        notes=notes_on(validation, test),
    )


def _workers(setting: EvaluationSetup, wanted: int) -> int:
    """As many maps at a time as memory holds. Raises ``ValueError`` if there is none for one.

    Most is taken by the resampled class-wise ECE, a number for each bin of each class, and by
    a few copies of the probabilities.
    """
    rows, classes = setting.measured.logits.shape
    of_one = 8 * classes * (2 * setting.resamples * setting.bins + 4 * rows)
    check_fits(of_one, f"a map of {rows} × {classes} with {setting.bins} bins takes")
    return max(1, min(wanted, available_memory() // (COPIES * of_one)))


def notes_on(validation: StoredPredictions, test: StoredPredictions | None) -> tuple[str, ...]:
    """What the files' readers noted, and what is missing among the rows to fit on."""
    notes = validation.notes + (() if test is None else test.notes)
    there = set() if validation.labels is None else set(validation.labels.tolist())
    absent = [name for k, name in enumerate(validation.class_names) if k not in there]
    if not absent:
        return notes
    one = len(absent) == 1
    return (
        *notes,
        f"{validation.name}: no validation row is of the class{'' if one else 'es'} "
        f"{listed(absent)}; maps with a parameter per class learn never to predict "
        f"{'it' if one else 'them'}",
    )


def _predictions(stored: StoredPredictions) -> LabelledLogits:
    if stored.labels is None:
        raise ValueError(f"{stored.name}: there are no labels")
    # Once for all maps, which work in double precision.
    return LabelledLogits(torch.from_numpy(stored.logits).double(), torch.from_numpy(stored.labels))


def _judged(
    names: Sequence[str], setting: EvaluationSetup, workers: int
) -> tuple[dict[str, Judged], dict[str, str]]:
    # Drawn before the threads start, or each would draw the same ones.
    resample_counts(len(setting.measured.labels), setting.resamples, setting.seed)
    judged: dict[str, Judged] = {}
    failed: dict[str, str] = {}
    # Threads, not processes: numpy and torch let go of the interpreter while they work.
    with threads(1), ThreadPoolExecutor(workers) as pool:
        tasks = {name: pool.submit(judge, name, setting) for name in names}
        for name, task in tasks.items():
            try:
                judged[name] = task.result()
            except Exception as error:  # one map's failure must not take the others' results
                failed[name] = f"{type(error).__name__}: {error}"
    if UNCALIBRATED not in judged:
        raise ValueError(f"the predictions cannot be evaluated: {failed[UNCALIBRATED]}")
    return judged, failed
