"""``make system`` installs Debian's packages, and waits for another apt that is at work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
APT = """#!/bin/sh
echo "apt-get $*" >> {log}
[ "$1" = update ] && [ $(grep -c update {log}) -lt 3 ] && echo "{message}" && exit 100
exit 0
"""


def made(directory: Path, message: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What ``make system`` does where a package is lacking, and apt's first updates fail."""
    log = directory / "log"
    commands = {
        "apt-get": APT.format(log=log, message=message),
        "id": "#!/bin/sh\necho 0\n",
        "sleep": f'#!/bin/sh\necho "sleep $*" >> {log}\n',
    }
    for name, text in commands.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", "system", "SYSTEM=no-such-command:its-package"],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    return done, log.read_text().splitlines()


def test_another_apt_s_lock_is_waited_for(tmp_path: Path) -> None:
    done, log = made(tmp_path, LOCKED)
    assert done.returncode == 0, done.stderr
    update = "apt-get update -qq"
    assert log[:5] == [update, "sleep 5", update, "sleep 5", update]
    assert len(log) == 6
    assert log[5].startswith("apt-get install ")
    assert "DPkg::Lock::Timeout=" in log[5]
    assert log[5].endswith(" its-package")


def test_any_other_trouble_ends_it_with_what_apt_says(tmp_path: Path) -> None:
    done, log = made(tmp_path, "E: The repository is not signed.")
    assert done.returncode != 0
    assert "E: The repository is not signed." in done.stdout
    assert log == ["apt-get update -qq"]
