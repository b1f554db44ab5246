"""A schedule as a value: what runs every night, where, when, and for how long at most."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sweeps.errors import UserError
from sweeps.host.secrets import masked
from sweeps.nightly.report.webhook import VARIABLE


@dataclass(frozen=True)
class Schedule:
    """What runs, where, when, and no longer than how long."""

    name: str
    command: tuple[str, ...]
    directory: Path
    hour: int
    minute: int
    time_limit: float | None
    config: Path
    """The user's directory for settings."""

    @property
    def title(self) -> str:
        """What the unit is called, and what marks the line of the crontab."""
        return f"calsweep-{self.name}"

    @property
    def credentials(self) -> Path:
        """The file of environment variables that every night reads."""
        return self.config / "calsweep" / f"{self.name}.env"

    @property
    def path(self) -> str:
        """PATH: that of the command first; cron and systemd know little of a user's own."""
        return f"{Path(self.command[0]).parent}:/usr/local/bin:/usr/bin:/bin"


def checked(
    name: str, command: list[str], directory: Path, at: str, time_limit: float | None
) -> Schedule:
    """The schedule of these arguments. Raises ``UserError`` if one of them is not right."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", name):
        raise UserError(f"the name {name!r}: a schedule's has only letters, digits, '_', '.', '-'")
    time = re.fullmatch(r"(\d{1,2}):(\d\d)", at)
    if time is None or int(time[1]) > 23 or int(time[2]) > 59:
        raise UserError(f"the time {at!r}: write hours and minutes, from 00:00 to 23:59")
    if not command or not Path(command[0]).is_absolute() or not os.access(command[0], os.X_OK):
        raise UserError(f"{' '.join(command)!r}: schedule a program by its absolute path")
    directory = directory.absolute()
    if not directory.is_dir():
        raise UserError(f"{directory}: there is no such directory to run in; make it first")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    for word in (*command, str(directory), str(config)):
        _check_word(word)
    return Schedule(
        name=name,
        command=tuple(command),
        directory=directory,
        hour=int(time[1]),
        minute=int(time[2]),
        time_limit=time_limit,
        config=config,
    )


def _check_word(word: str) -> None:
    # What a backslash means differs between crons, and at the end of a line in a unit.
    if not word.isprintable() or "\\" in word:
        raise UserError(f"{word!r}: no schedule can hold backslashes or control characters")
    if masked(word) != word:
        raise UserError(
            f"{masked(word)}: a schedule can be read by others; name the place without user and "
            "password, and put them into the file of credentials (MLFLOW_TRACKING_USERNAME, "
            "MLFLOW_TRACKING_PASSWORD)"
        )
    if word.split("=")[0] == "--webhook":
        raise UserError(
            "--webhook: its address is a secret, and a schedule can be read by others; put it "
            f"into the file of credentials as {VARIABLE}"
        )
