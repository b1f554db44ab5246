"""Learners: methods, which train a network, and estimators, with one file each."""

from calibration.learners import (
    catboost,
    hist_gradient_boosting,
    lightgbm,
    logistic_regression,
    random_forest,
    xgboost,
)
from calibration.learners.catalogue import (
    estimator_files,
    learner,
    learner_names,
    make_learner,
    trains_network,
)
from calibration.learners.estimator import (
    LEARNERS,
    BoosterHyperparameters,
    Estimator,
    EstimatorHyperparameters,
    Task,
)
from calibration.learners.estimator_training import (
    EstimatorTraining,
    FittedEstimator,
    check_rows_fit,
)
from calibration.learners.training import Training, begin

__all__ = [
    "LEARNERS",
    "BoosterHyperparameters",
    "Estimator",
    "EstimatorHyperparameters",
    "EstimatorTraining",
    "FittedEstimator",
    "Task",
    "Training",
    "begin",
    "catboost",
    "check_rows_fit",
    "estimator_files",
    "hist_gradient_boosting",
    "learner",
    "learner_names",
    "lightgbm",
    "logistic_regression",
    "make_learner",
    "random_forest",
    "trains_network",
    "xgboost",
]
