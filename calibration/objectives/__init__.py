"""Differentiable calibration errors, to be minimised by training. One file per idea.

All are functions of (logits, labels) and keyword hyperparameters, registered in ``OBJECTIVES``.
"""

from calibration.objectives.avuc import avuc
from calibration.objectives.boltzmann import confidence_bce
from calibration.objectives.brier_reliability import brier_reliability
from calibration.objectives.confidence_penalty import confidence_penalty, entropy
from calibration.objectives.dece import dece
from calibration.objectives.mdca import dca, mdca
from calibration.objectives.mmce import mmce, mmce_weighted
from calibration.objectives.objective import OBJECTIVES, Objective, Real
from calibration.objectives.rank_accuracy import soft_accuracy
from calibration.objectives.sb_ece import sb_ece
from calibration.objectives.sece import sece
from calibration.objectives.soft_histogram import histogram_ece, soft_memberships
from calibration.objectives.soft_ks import soft_ks
from calibration.objectives.spline_ks import spline_ks

__all__ = [
    "OBJECTIVES",
    "Objective",
    "Real",
    "avuc",
    "brier_reliability",
    "confidence_bce",
    "confidence_penalty",
    "dca",
    "dece",
    "entropy",
    "histogram_ece",
    "mdca",
    "mmce",
    "mmce_weighted",
    "sb_ece",
    "sece",
    "soft_accuracy",
    "soft_ks",
    "soft_memberships",
    "spline_ks",
]
