"""The winner of a sweep as an MLflow model: network, post-hoc map and abstention threshold."""
