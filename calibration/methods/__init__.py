"""Training methods: how a network is trained. One file per method or family."""

from calibration.methods import focal, label_smoothing, standard
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import (
    METHODS,
    Batch,
    Learner,
    Method,
    MethodHyperparameters,
    Numbers,
    TrainState,
    make_method,
)

__all__ = [
    "METHODS",
    "Batch",
    "Learner",
    "LossMethod",
    "Method",
    "MethodHyperparameters",
    "Numbers",
    "TrainState",
    "focal",
    "label_smoothing",
    "make_method",
    "standard",
]
