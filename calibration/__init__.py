"""Calibration of classifiers: metrics, training methods, post-hoc maps; torch only."""
