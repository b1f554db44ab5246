"""Calibration of classifiers: metrics, training methods, calibrators; no Ray, Optuna, MLflow."""

__distribution__ = "calsweep"
