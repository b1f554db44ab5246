"""A night as one marked line of the user's crontab."""

from __future__ import annotations

import os
import shlex
import subprocess

from sweeps.errors import UserError
from sweeps.nightly.schedule import Schedule

LONGEST_COMMAND = 998
"""What Debian's cron takes; a longer line would be cut."""
EMPTY = ("no crontab for", "No such file")


def line(schedule: Schedule) -> str:
    """The line, as cron reads it: ``%`` would be a line break, were it not escaped.

    What is printed goes to the system's log, where it is bounded and dated: cron itself would
    mail it, or on most machines drop it. Raises ``UserError`` for what no crontab can hold.
    """
    credentials = shlex.quote(str(schedule.credentials))
    command = (
        f"{{ cd {shlex.quote(str(schedule.directory))} || exit; "
        f"set -a; [ ! -f {credentials} ] || . {credentials}; set +a; "
        f"PATH={shlex.quote(schedule.path)} nice -n 10 {shlex.join(schedule.command)}; }} "
        f"2>&1 | logger -t {schedule.title} # {schedule.title}"
    )
    command = command.replace("%", r"\%")
    if len(command.encode()) > LONGEST_COMMAND:
        raise UserError(
            f"the line for cron would be {len(command.encode())} bytes long, and cron takes "
            f"{LONGEST_COMMAND}; use shorter paths, or systemd"
        )
    return f"{schedule.minute} {schedule.hour} * * * {command}"


def add(schedule: Schedule, *, write: bool) -> list[str]:
    """Put the line into the crontab, in the place of an older one of the same name."""
    new = line(schedule)
    lines = _read()
    old = [text for text in lines if _is_ours(text, schedule)]
    if old == [new.encode()]:
        return [f"the crontab has it already: {new}"]
    if write:
        _write([*(text for text in lines if not _is_ours(text, schedule)), new.encode()])
    say = ["written to the crontab:" if write else "this line would be added to the crontab:", new]
    for text in old:
        say += ["in the place of:", text.decode(errors="replace")]
    return say


def remove(schedule: Schedule, *, write: bool) -> list[str]:
    """Take the line out of the crontab; every other stays as it is."""
    lines = _read()
    old = [text for text in lines if _is_ours(text, schedule)]
    if not old:
        return [f"the crontab has no line marked '# {schedule.title}'; nothing to remove"]
    if write:
        _write([text for text in lines if not _is_ours(text, schedule)])
    head = "removed from the crontab:" if write else "this would be removed from the crontab:"
    return [head, *(text.decode(errors="replace") for text in old)]


def _is_ours(text: bytes, schedule: Schedule) -> bool:
    """Marked with our name at its end, and not a comment."""
    marked = text.rstrip().endswith(f" # {schedule.title}".encode())
    return marked and not text.lstrip().startswith(b"#")


def _read() -> list[bytes]:
    done = _crontab("-l")
    if done.returncode == 0:
        return done.stdout.splitlines()
    complaint = done.stderr.decode(errors="replace").strip()
    if any(words in complaint for words in EMPTY):
        return []
    raise UserError(f"the crontab cannot be read: {complaint}")


def _write(lines: list[bytes]) -> None:
    done = _crontab("-", b"".join(text + b"\n" for text in lines))
    if done.returncode != 0:
        complaint = done.stderr.decode(errors="replace").strip()
        raise UserError(f"the crontab cannot be written: {complaint}")


def _crontab(argument: str, content: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["crontab", argument],
            input=content,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError:
        raise UserError(
            "this machine has no cron (there is no command crontab); install it (Debian: apt "
            "install cron), or use --install systemd"
        ) from None
