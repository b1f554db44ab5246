"""Training methods: how a network is trained. One file per method or family."""

from calibration.methods import (  # noqa: F401  (importing a method registers it)
    adafocal,
    adaptive_label_smoothing,
    bo4sc,
    calibration_losses,
    dual_focal,
    focal,
    focal_label_smoothing,
    gamma_net,
    joint_beta,
    label_smoothing,
    learned_histogram,
    margin_label_smoothing,
    meta_l2,
    meta_label_smoothing,
    mixup,
    multi_objective,
    pairwise_constraints,
    standard,
)
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import (
    METHODS,
    BackboneHyperparameters,
    Batch,
    InputHyperparameters,
    Learner,
    Method,
    MethodHyperparameters,
    Numbers,
    Seen,
    TrainState,
    make_method,
)

__all__ = [
    "METHODS",
    "BackboneHyperparameters",
    "Batch",
    "InputHyperparameters",
    "Learner",
    "LossMethod",
    "Method",
    "MethodHyperparameters",
    "Numbers",
    "Seen",
    "TrainState",
    "make_method",
]
