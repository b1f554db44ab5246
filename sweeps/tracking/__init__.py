"""Records → tracking: published by a separate thread while a sweep runs, or later by ``sync``."""

from sweeps.tracking.backend import TrackingBackend, TrackingError, TrackingSession
from sweeps.tracking.recorder import Recorder, sync

__all__ = ["Recorder", "TrackingBackend", "TrackingError", "TrackingSession", "sync"]
