"""A nightly schedule: the text for a crontab, or for the user's own systemd.

The text is printed and never installed. Others can read crontabs and units, so they contain
no secrets: credentials go into a private file that every scheduled night reads.
"""

from __future__ import annotations

import datetime
import getpass
import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from sweeps.errors import UserError
from sweeps.host.secrets import masked
from sweeps.nightly.report.webhook import PING_VARIABLE, VARIABLE
from sweeps.nightly.run.unattended import GRACE_SECONDS, MARGIN_SECONDS

LONGEST_COMMAND = 998
"""The limit of Debian's cron; a longer line would be cut."""
# On stop, only the command is signalled, so that it stops its workers itself. A night missed
# while the machine was off runs when it is on again.
UNITS = """\
# {place}/{title}.service
[Unit]
Description=calsweep: nightly suite, verdict and report ({suite})

[Service]
Type=oneshot
WorkingDirectory={directory}
Environment="PATH={path}"
EnvironmentFile=-{credentials}
ExecStart={command}
# Later than the command's own time limit: a backstop for a night that can no longer enforce it.
TimeoutStartSec={longest}
TimeoutStopSec={grace}
KillMode=mixed
# The sweep restarts a worker that ran out of memory.
OOMPolicy=continue
Nice=10
LimitNOFILE=65536
# Ray needs /tmp, its sockets and writable, executable memory: these are not restricted.
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

# {place}/{title}.timer
[Unit]
Description=calsweep: every night ({suite})

[Timer]
OnCalendar=*-*-* {at:%H:%M}:00
RandomizedDelaySec=5min
Persistent=true

[Install]
WantedBy=timers.target

"""


@dataclass(frozen=True)
class Schedule:
    """What runs every night, where, when, and for how long at most.

    ``command`` names its program by an absolute path; ``config`` is the user's configuration
    directory. Raises ``UserError`` for a word that a schedule cannot contain or that is a secret.
    """

    suite: str
    command: tuple[str, ...]
    directory: Path
    at: datetime.time
    time_limit: float | None
    config: Path

    def __post_init__(self) -> None:
        for word in (*self.command, str(self.directory), str(self.config)):
            # The meaning of a backslash differs between crons, and at the end of a line in a unit.
            if not word.isprintable() or "\\" in word:
                raise UserError(
                    f"{word!r}: a schedule cannot contain backslashes or control characters"
                )
            if masked(word) != word:
                raise UserError(
                    f"{masked(word)}: others can read a schedule; write the address without "
                    "user and password, and put these into the credentials file "
                    "(MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD)"
                )

    @property
    def title(self) -> str:
        """The name of the units, and the marker of the crontab line."""
        return f"calsweep-{self.suite}"

    @property
    def credentials(self) -> Path:
        """The file of environment variables that every night reads."""
        return self.config / "calsweep" / f"{self.suite}.env"

    @property
    def path(self) -> str:
        """PATH, the command's directory first; cron and systemd do not see the user's PATH."""
        return f"{Path(self.command[0]).parent}:/usr/local/bin:/usr/bin:/bin"


def crontab(schedule: Schedule) -> str:
    """The crontab line, with instructions as comments.

    A night's output goes to the system log, which is bounded and dated: cron itself would
    mail it, or on most machines drop it. Raises ``UserError`` if the line is too long.
    """
    title, credentials = schedule.title, shlex.quote(str(schedule.credentials))
    command = (
        f"{{ cd {shlex.quote(str(schedule.directory))} || exit; "
        f"set -a; [ ! -f {credentials} ] || . {credentials}; set +a; "
        f"PATH={shlex.quote(schedule.path)} nice -n 10 {shlex.join(schedule.command)}; }} "
        f"2>&1 | logger -t {title} # {title}"
    ).replace("%", r"\%")  # cron would read it as a line break
    if len(command.encode()) > LONGEST_COMMAND:
        raise UserError(
            f"the crontab line would be {len(command.encode())} bytes long; cron accepts "
            f"{LONGEST_COMMAND}; use shorter paths, or systemd"
        )
    return f"{schedule.at.minute} {schedule.at.hour} * * * {command}\n" + _comments(
        schedule,
        "To add the line above, or to replace or delete it later:",
        "  crontab -e",
        f"Output of the nights: journalctl -t {title}",
    )


def systemd(schedule: Schedule) -> str:
    """The service and the timer, each under its file name, with instructions as comments."""
    title, limit = schedule.title, schedule.time_limit
    # systemd replaces variables in the arguments, but not in the program's own path.
    program = ("/usr/bin/env",) if "$" in schedule.command[0] else ()
    units = UNITS.format(
        place=schedule.config / "systemd" / "user",
        title=title,
        suite=schedule.suite,
        directory=_percent(str(schedule.directory)),
        path=_percent(schedule.path.replace('"', r"\"")),
        credentials=_percent(str(schedule.credentials)),
        command=" ".join(map(_word, (*program, *schedule.command))),
        longest="infinity" if limit is None else math.ceil(limit + GRACE_SECONDS + MARGIN_SECONDS),
        grace=math.ceil(GRACE_SECONDS),
        at=schedule.at,
    )
    return units + _comments(
        schedule,
        "Save the units under the names above them, then run these; the last one lets nights",
        "start while you are logged out:",
        # Restart: a running timer adopts a new time only then.
        f"  systemctl --user daemon-reload && systemctl --user enable {title}.timer",
        f"  systemctl --user restart {title}.timer",
        f"  loginctl enable-linger {getpass.getuser()}",
        f"To see it: systemctl --user list-timers; journalctl --user -u {title}",
        f"To disable it: systemctl --user disable --now {title}.timer",
    )


def _comments(schedule: Schedule, *lines: str) -> str:
    file = schedule.credentials
    directory, name = shlex.quote(str(file.parent)), shlex.quote(str(file))
    credentials = (
        "Credentials, if any, go into a private file, one NAME='value' per line:",
        f"{VARIABLE}, {PING_VARIABLE}, MLFLOW_TRACKING_URI, MLFLOW_TRACKING_USERNAME,",
        "MLFLOW_TRACKING_PASSWORD.",
        f"  mkdir -p {directory} && touch {name} && chmod 600 {name}",
    )
    return "\n".join(f"# {line}" for line in (*credentials, *lines))


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _word(word: str) -> str:
    """An argument as ExecStart reads it."""
    escaped = _percent(word).replace('"', r"\"").replace("$", "$$")
    plain = word and not any(sign in word for sign in " \"';")
    return escaped if plain else f'"{escaped}"'
