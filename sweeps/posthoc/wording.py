"""What the terminal and the page both say of how stored predictions were judged."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.data.predictions import StoredPredictions
from calibration.evaluation import FOLDS
from calibration.prior import Prior
from sweeps.posthoc.evaluation import StoredEvaluation
from sweeps.posthoc.files import kept_names
from sweeps.posthoc.verdicts import MANY_ROWS

FLATTERED = "as the best is chosen on the same rows, its figures flatter it a little"


def procedure(evaluation: StoredEvaluation) -> str:
    """How many folds and resamples there were, and why if the folds are fewer."""
    fewer = f" (more than {MANY_ROWS:,} rows)" if evaluation.folds < FOLDS else ""
    return (
        f"{evaluation.folds} folds{fewer} for validation NLL, "
        f"{evaluation.resamples} bootstrap resamples"
    )


def kept_note(stored: StoredPredictions) -> list[str]:
    """Which columns or arrays of the file stay with their rows, and which do not."""
    kept = kept_names(stored)
    lost = [name for name in stored.carried if name not in kept]
    notes = [f"kept beside the results: {', '.join(kept)}"] if kept else []
    if lost:
        notes.append(f"not kept, for they are called like results: {', '.join(lost)}")
    return notes


def correction(prior: Prior, names: Sequence[str], most: int = 5) -> str:
    """From which shares to which, of the classes that change most."""
    shares = sorted(
        zip(names, prior.calibrated, prior.deployed, strict=True),
        key=lambda each: -abs(each[1] - each[2]),
    )
    shown = ", ".join(f"{name} {old:.2%} → {new:.2%}" for name, old, new in shares[:most])
    more = f" and {len(shares) - most} more" if len(shares) > most else ""
    return (
        f"corrected for the deployment prior: {shown}{more}; this holds where the rows of each "
        "class are as they were, and only their frequencies differ"
    )
