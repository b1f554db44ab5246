"""Errors that a user is shown as one message, without a traceback."""

from __future__ import annotations

from typing import ClassVar


class UserError(Exception):
    """What was asked for cannot be done; the message says what is wrong, where, and what to do.

    ``exit_code`` is the command's: 2 for input that has to be changed, 1 for what failed on the
    way and may work another time.
    """

    exit_code: ClassVar[int] = 2
