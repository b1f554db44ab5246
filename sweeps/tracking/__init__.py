"""Records → MLflow: published once, from a thread of its own, whenever the server is there."""

from sweeps.tracking.mlflow.database import create_database
from sweeps.tracking.mlflow.publisher import Publisher
from sweeps.tracking.recorder import Recorder, TrackingError, default_uri, sync

__all__ = ["Publisher", "Recorder", "TrackingError", "create_database", "default_uri", "sync"]
