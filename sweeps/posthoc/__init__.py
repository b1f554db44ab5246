"""Calibrators on a user's own predictions: no sweep, no training."""

from sweeps.posthoc.evaluation import StoredEvaluation, evaluate_stored

__all__ = ["StoredEvaluation", "evaluate_stored"]
