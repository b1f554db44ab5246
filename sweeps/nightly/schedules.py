"""Putting a nightly suite on this machine's schedule, and taking it off again.

Nothing secret is ever written into a crontab or a unit, which others can read: credentials
stand in a file of the user's own that every scheduled night reads.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from sweeps.errors import UserError
from sweeps.nightly import crontab, systemd_units
from sweeps.nightly.report.webhook import VARIABLE
from sweeps.nightly.schedule import checked

CREDENTIALS = f"""\
# Read before every scheduled night. One NAME='value' on a line; for your eyes only (mode 0600).
# MLFLOW_TRACKING_URI='https://mlflow.example.org'
# MLFLOW_TRACKING_USERNAME='nightly'
# MLFLOW_TRACKING_PASSWORD='...'
# {VARIABLE}='https://hooks.example.org/...'
"""


def install(
    kind: Literal["cron", "systemd"],
    command: list[str],
    *,
    at: str = "02:00",
    directory: Path,
    remove: bool = False,
    write: bool = False,
    name: str = "nightly",
    time_limit: float | None = 2400.0,
) -> str:
    """Schedule ``command`` in ``directory`` every night ``at`` a local time, or remove it.

    Returns what was written where, or with ``write`` false what would be. ``name`` tells
    several schedules of one user apart; a schedule of the same name is replaced.
    ``time_limit`` is the command's own, in seconds: systemd steps in some time after it, and
    never if it is None.
    Raises ``UserError`` for a command that is not absolute or holds a secret, a time that is
    none, and a machine without cron or systemd.
    """
    schedule = checked(name, command, directory, at, time_limit)
    add, take_away = {
        "cron": (crontab.add, crontab.remove),
        "systemd": (systemd_units.add, systemd_units.remove),
    }[kind]
    if remove:
        lines = take_away(schedule, write=write)
        if schedule.credentials.exists():
            lines.append(f"{schedule.credentials} stays; delete it if nothing else needs it")
    else:
        lines = add(schedule, write=write)
        lines += _credentials(schedule.credentials, write=write)
    if not write:
        lines.append("nothing was changed; with --yes it is done")
    return "\n".join(lines)


def _credentials(path: Path, *, write: bool) -> list[str]:
    """Make the file of credentials if it is missing; say so if others can read it."""
    if path.exists():
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            return [f"credentials: {path} can be read by others; chmod 600 '{path}'"]
        return [f"credentials: {path} stays as it is"]
    if not write:
        return [f"credentials: {path} (mode 0600) would be made, with examples"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; make it writable") from None
    with os.fdopen(handle, "w") as file:
        file.write(CREDENTIALS)
    return [f"credentials: {path} was made (mode 0600); put them there"]
