"""Texts, shared by terminal and page, on how stored predictions were judged."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.data.predictions import StoredPredictions
from calibration.evaluation import FOLDS
from calibration.prior import Prior
from sweeps.posthoc.evaluation import StoredEvaluation
from sweeps.posthoc.files import kept_names
from sweeps.posthoc.verdicts import MANY_ROWS

_MOST_SHOWN = 5
FLATTERED = "the best is chosen on the same rows, so its figures are slightly optimistic"


def procedure(evaluation: StoredEvaluation) -> str:
    """The numbers of folds and resamples, and why if there are fewer folds."""
    fewer = f" (more than {MANY_ROWS:,} rows)" if evaluation.folds < FOLDS else ""
    return (
        f"{evaluation.folds} folds{fewer} for validation NLL, "
        f"{evaluation.resamples} bootstrap resamples"
    )


def kept_note(stored: StoredPredictions) -> list[str]:
    """Which columns or arrays of the file are kept with their rows, and which are not."""
    kept = kept_names(stored)
    lost = [name for name in stored.carried if name not in kept]
    notes = [f"kept beside the results: {', '.join(kept)}"] if kept else []
    if lost:
        notes.append(f"not kept, because they are named like results: {', '.join(lost)}")
    return notes


def correction(prior: Prior, names: Sequence[str]) -> str:
    """The shares before and after, for the classes that change most."""
    shares = sorted(
        zip(names, prior.calibrated, prior.deployed, strict=True),
        key=lambda each: -abs(each[1] - each[2]),
    )
    shown = ", ".join(f"{name} {old:.2%} → {new:.2%}" for name, old, new in shares[:_MOST_SHOWN])
    more = f" and {len(shares) - _MOST_SHOWN} more" if len(shares) > _MOST_SHOWN else ""
    return (
        f"corrected for the deployment prior: {shown}{more}; this holds if the rows of each "
        "class are distributed as before, and only the frequencies differ"
    )
