"""The MLflow backend: runs, artifacts, saved views."""
