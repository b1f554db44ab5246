"""Errors that are shown to users as one message, without a traceback."""

from __future__ import annotations

from typing import ClassVar


class UserError(Exception):
    """A request that cannot be fulfilled; the message says what is wrong, where, and what to do.

    ``exit_code`` is the command's: 2 for input that has to be changed, 1 for failures at
    run time, which a retry may fix.
    """

    exit_code: ClassVar[int] = 2
