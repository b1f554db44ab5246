"""What the terminal and the page both say of how stored predictions were judged."""

from __future__ import annotations

from calibration.evaluation import FOLDS
from sweeps.posthoc.evaluation import StoredEvaluation
from sweeps.posthoc.verdicts import MANY_ROWS

FLATTERED = "as the best is chosen on the same rows, its figures flatter it a little"


def procedure(evaluation: StoredEvaluation) -> str:
    """How many folds and resamples there were, and why if the folds are fewer."""
    fewer = f" (more than {MANY_ROWS:,} rows)" if evaluation.folds < FOLDS else ""
    return (
        f"{evaluation.folds} folds{fewer} for validation NLL, "
        f"{evaluation.resamples} bootstrap resamples"
    )
