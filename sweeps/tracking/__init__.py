"""Records → tracking: published once, from a thread of its own, whenever the server is there."""

from sweeps.tracking.backend import TrackingBackend, TrackingError, TrackingSession
from sweeps.tracking.recorder import Recorder, sync

__all__ = ["Recorder", "TrackingBackend", "TrackingError", "TrackingSession", "sync"]
