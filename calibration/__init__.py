"""Calibration of classifiers: metrics, training methods, calibrators; torch only."""
