"""Schedules as cron and systemd themselves read them; the machine's own are never touched."""

from __future__ import annotations

import datetime
import getpass
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.cli.main import main
from sweeps.errors import UserError
from sweeps.nightly.schedule import Schedule, crontab, systemd
from tests.sweeps.nightly.kit import SEARCHED, Scene

TELL = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]))
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that is not easily quoted, with a program."""
    odd = tmp_path / """a b 100% d'oh "q" $HOME"""
    program(odd / "bin" / "tell", TELL)
    return odd


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    odd = tmp_path / "con fig 5%"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(odd))
    return odd


def command(place: Path) -> tuple[str, ...]:
    odd = ["a b", "%F", "100%%", "$HOME", "${X}", "`x`", "d'oh", 'say "x"', ";", "x #y", "", "ü"]
    return (str(place / "bin" / "tell"), "--nights", str(place / "nights"), *odd)


def schedule(place: Path, config: Path, *more: str) -> Schedule:
    return Schedule(
        suite="nightly",
        command=(*command(place), *more),
        directory=place,
        at=datetime.time(3, 5),
        time_limit=6000.0,
        config=config,
    )


def cron_takes(text: str, file: Path) -> bool:
    """By the syntax check of the real command: ``-T`` in cronie, ``-n`` in Debian's cron."""
    file.write_text(text)
    usage = subprocess.run(["crontab", "-h"], capture_output=True, text=True)
    known = re.findall(r"^\s+(-[Tn])\b", usage.stdout + usage.stderr, re.MULTILINE)
    flag = "-T" if "-T" in known else "-n"
    return subprocess.run(["crontab", flag, str(file)], capture_output=True).returncode == 0


def test_cron_takes_the_text(place: Path, config: Path, tmp_path: Path) -> None:
    text = crontab(schedule(place, config))
    line, *comments = text.splitlines()
    assert line.startswith("5 3 * * * ")
    assert all(each.startswith("# ") for each in comments)
    assert "#   crontab -e" in comments
    assert cron_takes(text + "\n", tmp_path / "crontab")
    assert not cron_takes(text.replace("5 3 *", "5 24 *") + "\n", tmp_path / "crontab")


def test_cron_runs_the_command_as_it_was_given(place: Path, config: Path, tmp_path: Path) -> None:
    line, *comments = crontab(schedule(place, config)).splitlines()
    [make] = [each.removeprefix("#   ") for each in comments if "chmod" in each]
    subprocess.run(["/bin/sh", "-c", make], check=True)
    secrets = config / "calsweep" / "nightly.env"
    assert (secrets.read_text(), secrets.stat().st_mode & 0o777) == ("", 0o600)
    secrets.write_text("PASSWORD='p&ss $word %d'\n")
    subprocess.run(["/bin/sh", "-c", make], check=True)
    assert secrets.read_text(), "made again, it stays as it is"
    # What cron does with a line: five fields, then a command in which \% is %, and % the end.
    script = line.split(maxsplit=5)[5].replace(r"\%", "\0")
    assert "%" not in script
    program(tmp_path / "bin" / "logger", f"#!/bin/sh\necho \"$@\"; cat > '{tmp_path}/logged'\n")
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace("\0", "%").replace("logger", f"{tmp_path}/bin/logger")],
        env={"HOME": "/", "LOGNAME": "me", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("-t calsweep-nightly\n", "")
    argv, directory, environment = json.loads((tmp_path / "logged").read_text())
    assert tuple(argv) == command(place)
    assert directory == str(place)
    assert environment["PASSWORD"] == "p&ss $word %d"
    assert environment["PATH"] == f"{place}/bin:/usr/local/bin:/usr/bin:/bin"


def test_a_line_too_long_for_cron_is_refused(place: Path, config: Path) -> None:
    with pytest.raises(UserError, match="use shorter paths, or systemd"):
        crontab(schedule(place, config, "x" * 900))


def save(text: str) -> list[Path]:
    """Save units as their headings say, as a person would."""
    _, *parts = re.split(r"^# (/.*\.(?:service|timer))\n", text, flags=re.MULTILINE)
    paths = [Path(name) for name in parts[::2]]
    for path, content in zip(paths, parts[1::2], strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return paths


def test_systemd_reads_the_units_as_they_were_meant(
    place: Path, config: Path, tmp_path: Path
) -> None:
    """Its own check has no complaint, and its own dump of what it read has every word."""
    units = save(systemd(schedule(place, config)))
    assert units == [
        config / "systemd" / "user" / f"calsweep-nightly.{kind}" for kind in ("service", "timer")
    ]
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environment = os.environ | {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)}
    check = ["systemd-analyze", "verify", "--user", "--man=no", *map(str, units)]
    done = subprocess.run(check, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # Its test mode is not for root; in a namespace of its own, root has another number.
    dump = ["unshare", "--user", "--map-user=1000", "/lib/systemd/systemd", "--user", "--test"]
    dump += ["--unit=calsweep-nightly.timer", "--log-target=console"]
    done = subprocess.run(dump, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    service = read_dump(done.stdout, "calsweep-nightly.service")
    # The dump is written as for a shell; $$ becomes $ when the command is run.
    split = ["bash", "-c", f"printf '%s\\0' {service['Command Line']}"]
    words = subprocess.run(split, capture_output=True, text=True, check=True).stdout.split("\0")
    assert [word.replace("$$", "$") for word in words[:-1]] == ["/usr/bin/env", *command(place)]
    assert service["WorkingDirectory"] == str(place)
    assert service["Environment"] == f"PATH={place}/bin:/usr/local/bin:/usr/bin:/bin"
    assert service["EnvironmentFile"] == f"-{config}/calsweep/nightly.env"
    assert service["TimeoutStartSec"] == "1h 55min"  # 100 minutes, 5 of grace, 10 of margin
    assert service["KillMode"] == "mixed"
    assert service["OOMPolicy"] == "continue"
    timer = read_dump(done.stdout, "calsweep-nightly.timer")
    assert timer["OnCalendar"] == "*-*-* 03:05:00"
    assert timer["Persistent"] == "yes"
    assert timer["Unit"] == "calsweep-nightly.service"


def read_dump(text: str, unit: str) -> dict[str, str]:
    """The lines ``name: value`` of one unit."""
    part = text.split(f"-> Unit {unit}:\n")[1].split("-> Unit ")[0]
    lines = (line.strip().partition(": ") for line in part.splitlines())
    return {name: value for name, separator, value in lines if separator}


def test_a_path_without_oddities_stands_in_the_unit_as_it_is(config: Path) -> None:
    plain = Schedule(
        suite="nightly",
        command=("/srv/bin/calsweep", "nightly"),
        directory=Path("/srv"),
        at=datetime.time(2),
        time_limit=None,
        config=config,
    )
    text = systemd(plain)
    assert "\nExecStart=/srv/bin/calsweep nightly\n" in text
    assert "\nTimeoutStartSec=infinity\n" in text
    assert f"\n#   loginctl enable-linger {getpass.getuser()}\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tracking", "http://me:hidden@host"], r"http://\*\*\*@host: .* MLFLOW_TRACKING_PASS"),
        (["two\nlines"], "control characters"),
        (["back\\slash"], "backslashes"),
    ],
)
def test_what_must_not_stand_in_a_schedule_is_refused(
    arguments: list[str], message: str, place: Path, config: Path
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        schedule(place, config, *arguments)
    assert "hidden" not in str(caught.value)


def test_the_command_prints_itself_and_writes_nothing(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Scene(tmp_path).write_suite(searched=SEARCHED)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    given = ["nightly", "small.yaml", "--address", "ray://head:10001"]
    more = ["--nights-url", "https://ci.example.org/nights", "--status-port", "[::1]:8090"]
    assert main([*given, *more, "--print", "systemd"]) == 0
    assert f" {' '.join(more)}\n" in capfd.readouterr().out
    assert main([*given, "--print", "systemd"]) == 0
    out = capfd.readouterr().out
    assert f" nightly {tmp_path}/small.yaml --nights {tmp_path}/nights " in out
    assert " --address ray://head:10001\n" in out
    assert "\nOnCalendar=*-*-* 02:00:00\n" in out
    assert "\nTimeoutStartSec=infinity\n" in out, "as the suite, so the unit"
    assert main([*given, "--print", "systemd", "--time-limit", "40m"]) == 0
    out = capfd.readouterr().out
    assert " --time-limit 2400s\n" in out
    assert "\nTimeoutStartSec=3300\n" in out  # 300 of grace, 600 of margin
    assert main([*given, "--print", "cron", "--at", "4:30"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("30 4 * * * { cd ")
    assert cron_takes(out, tmp_path / "crontab")
    (tmp_path / "crontab").unlink()
    assert sorted(tmp_path.rglob("*")) == before
    for at in ("24:00", "2", "02:60", "2 am"):
        with pytest.raises(SystemExit, match="2"):
            main([*given, "--print", "cron", "--at", at])
        assert "from 00:00 to 23:59" in capfd.readouterr().err
