"""A night as a service and a timer of the user's own systemd."""

from __future__ import annotations

import getpass
import math
import subprocess
from pathlib import Path

from sweeps.errors import UserError
from sweeps.nightly.run.unattended import GRACE_SECONDS
from sweeps.nightly.schedule import Schedule

MARGIN_SECONDS = 600.0
"""For starting, reporting and publishing, which the command's own limit may not count."""

START = ("enable", "restart")


def service(schedule: Schedule) -> str:
    """The service: stopped, only the command is told, so that it stops its workers itself."""
    # systemd replaces variables in the arguments, but not in the program's own path.
    program = ("/usr/bin/env",) if "$" in schedule.command[0] else ()
    words = " ".join(_word(word) for word in (*program, *schedule.command))
    return f"""\
[Unit]
Description=calsweep: the suite of the night, its verdict and report ({schedule.name})

[Service]
Type=oneshot
WorkingDirectory={_percent(str(schedule.directory))}
Environment="PATH={_escape(schedule.path)}"
EnvironmentFile=-{_percent(str(schedule.credentials))}
ExecStart={words}
{_longest(schedule.time_limit)}
TimeoutStopSec={math.ceil(GRACE_SECONDS / 60)}min
KillMode=mixed
# A worker that needed too much memory is begun again by the sweep.
OOMPolicy=continue
Nice=10
LimitNOFILE=65536
# Ray needs /tmp, its sockets and writable, executable memory: those stay as they are.
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""


def _longest(time_limit: float | None) -> str:
    if time_limit is None:
        return "# Neither the command nor its suite has a time limit.\nTimeoutStartSec=infinity"
    minutes = math.ceil((time_limit + GRACE_SECONDS + MARGIN_SECONDS) / 60)
    why = "The command has a time limit of its own; this is for what can no longer keep it."
    return f"# {why}\nTimeoutStartSec={minutes}min"


def timer(schedule: Schedule) -> str:
    """The timer; a night missed while the machine was off is made up for when it is on."""
    return f"""\
[Unit]
Description=calsweep: every night ({schedule.name})

[Timer]
OnCalendar=*-*-* {schedule.hour:02d}:{schedule.minute:02d}:00
RandomizedDelaySec=5min
Persistent=true

[Install]
WantedBy=timers.target
"""


def units(schedule: Schedule) -> dict[Path, str]:
    """Where the files go, and what they say."""
    place = schedule.config / "systemd" / "user"
    return {
        place / f"{schedule.title}.service": service(schedule),
        place / f"{schedule.title}.timer": timer(schedule),
    }


def add(schedule: Schedule, *, write: bool) -> list[str]:
    """Write both files and start the timer."""
    files = units(schedule)
    # Restarted: a timer that runs already takes up another time only then.
    commands = [["daemon-reload"], *([verb, f"{schedule.title}.timer"] for verb in START)]
    if write:
        _systemctl("--version")  # raises where there is none, before anything is written
        for path, text in files.items():
            _write(path, text)
        for words in commands:
            _systemctl(*words)
    lines = []
    for path, text in files.items():
        lines += [f"{'written' if write else 'would be written'}: {path}", text]
    done = "run" if write else "would be run"
    lines += [f"{done}: systemctl --user {' '.join(words)}" for words in commands]
    user = getpass.getuser()
    lines.append(f"once, so that it runs while you are logged out: loginctl enable-linger {user}")
    lines.append(f"see it: systemctl --user list-timers; journalctl --user -u {schedule.title}")
    return lines


def remove(schedule: Schedule, *, write: bool) -> list[str]:
    """Stop the timer and delete both files; a night that is running goes on to its end."""
    found = [path for path in units(schedule) if path.exists()]
    if not found:
        return [f"there is no unit {schedule.title} of yours; nothing to remove"]
    if write:
        _systemctl("disable", "--now", f"{schedule.title}.timer")
        for path in found:
            path.unlink(missing_ok=True)
        _systemctl("daemon-reload")
    return [f"{'removed' if write else 'would be removed'}: {path}" for path in found]


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; make it writable") from None


def _systemctl(*words: str) -> None:
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        raise UserError(
            "this machine has no systemd (there is no command systemctl); use --install cron"
        ) from None
    if done.returncode != 0:
        raise UserError(
            f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}; log in as the "
            "user whose nights these are and do it again, or use --install cron"
        )


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _escape(text: str) -> str:
    return _percent(text.replace('"', r"\""))


def _word(word: str) -> str:
    """An argument as ExecStart reads it."""
    escaped = _escape(word).replace("$", "$$")
    plain = word and not any(sign in word for sign in " \"';")
    return escaped if plain else f'"{escaped}"'
