"""Make the parts of a report independently: a failure costs only that part."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from calibration.text import visible
from sweeps.store import StoreError

LOG = logging.getLogger("calsweep")
_LONGEST_REASON = 300
T = TypeVar("T")


class Attempts:
    """Tries parts of a report; ``failures`` has the names of those that failed, and why."""

    def __init__(self) -> None:
        self.failures: dict[str, str] = {}

    def part(self, name: str, make: Callable[[], T], otherwise: T) -> T:
        """The result of ``make``, or ``otherwise`` if it fails, which is logged.

        Raises ``StoreError``: if this part cannot be written, no other can.
        """
        try:
            return make()
        except StoreError:
            raise
        except Exception as error:  # a plot, a table or a user's own calibrator may raise anything
            message = " ".join(f"{type(error).__name__}: {error}".split())
            reason = visible(
                message if len(message) <= _LONGEST_REASON else f"{message[:_LONGEST_REASON]}…"
            )
            self.failures[name] = reason
            LOG.warning("report: %s could not be made: %s", visible(name, keep=""), reason)
            LOG.debug("report: %s", visible(name, keep=""), exc_info=error)
            return otherwise
