"""Records → tracking: published once, from a separate thread, whenever the server is available."""

from sweeps.tracking.backend import TrackingBackend, TrackingError, TrackingSession
from sweeps.tracking.recorder import Recorder, sync

__all__ = ["Recorder", "TrackingBackend", "TrackingError", "TrackingSession", "sync"]
