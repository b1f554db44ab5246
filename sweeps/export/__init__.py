"""The winner of a sweep as an MLflow model: network, calibrator and abstention threshold."""
