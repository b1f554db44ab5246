"""Schedules as cron and systemd themselves read them; the machine's own are never touched."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from sweeps.errors import UserError
from sweeps.nightly import crontab, systemd_units
from sweeps.nightly.schedule import Schedule
from sweeps.nightly.schedules import install

ROOT = Path(__file__).parents[3]
READY = ROOT / "cluster" / "schedules"
TELL = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]))
"""
# The real command, on a spool of the test's own.
CRONTAB = """#!/bin/sh
exec unshare --mount sh -c '
  mount --bind "$0" /var/spool/cron/crontabs && exec /usr/bin/crontab "$@"' '{spool}' "$@"
"""
SYSTEMCTL = """#!/bin/sh
echo "$*" >> '{calls}'
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is not easily quoted, with a program, a home and stand-in commands."""
    spool = tmp_path / "spool"
    spool.mkdir()
    program(tmp_path / "bin" / "crontab", CRONTAB.format(spool=spool))
    program(tmp_path / "bin" / "systemctl", SYSTEMCTL.format(calls=tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "con fig 5%"))
    odd = tmp_path / """a b 100% d'oh "q" $HOME"""
    program(odd / "bin" / "tell", TELL)
    return odd


def command(place: Path) -> list[str]:
    odd = ["a b", "%F", "100%%", "$HOME", "${X}", "`x`", "d'oh", 'say "x"', ";", "x #y", "", "ü"]
    return [str(place / "bin" / "tell"), "--nights", str(place / "nights"), *odd]


def cron(*arguments: str, content: str | None = None) -> str:
    return subprocess.run(
        ["crontab", *arguments], input=content, capture_output=True, text=True, check=True
    ).stdout


def config() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"])


MINE = """\
# my jobs
MAILTO=""
0 2 * * * date +\\%F # calsweep-nightly-but-mine
# 0 2 * * * an old line # calsweep-nightly
@daily  true
"""


def test_the_crontab_gains_one_line_and_loses_exactly_that(place: Path) -> None:
    cron("-", content=MINE)
    said = install("cron", command(place), directory=place)
    assert "nothing was changed" in said
    assert cron("-l") == MINE
    for _ in range(2):
        written = install("cron", command(place), directory=place, write=True)
        [line] = cron("-l").removeprefix(MINE).splitlines()
        assert line in said
        assert line in written
        assert line.startswith("0 2 * * * ")
    install("cron", command(place), at="4:30", directory=place, write=True)
    install("cron", command(place), directory=place, name="other", write=True)
    moved, other = cron("-l").removeprefix(MINE).splitlines()
    assert moved == "30 4" + line.removeprefix("0 2")
    would = install("cron", command(place), directory=place, remove=True)
    assert moved in would
    assert len(cron("-l").splitlines()) == len(MINE.splitlines()) + 2
    install("cron", command(place), directory=place, remove=True, write=True)
    assert cron("-l") == MINE + other + "\n"
    said = install("cron", command(place), directory=place, remove=True, write=True)
    assert "nothing to remove" in said
    assert cron("-l") == MINE + other + "\n"


def test_the_first_line_of_a_user_without_a_crontab(place: Path) -> None:
    install("cron", command(place), directory=place, write=True)
    assert len(cron("-l").splitlines()) == 1
    install("cron", command(place), directory=place, remove=True, write=True)
    assert cron("-l") == ""


def test_cron_runs_the_command_as_it_was_given(place: Path, tmp_path: Path) -> None:
    install("cron", command(place), directory=place, write=True)
    secrets = config() / "calsweep" / "nightly.env"
    secrets.write_text(secrets.read_text() + "PASSWORD='p&ss $word %d'\n")
    [line] = cron("-l").splitlines()
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
    assert argv == command(place)
    assert directory == str(place)
    assert environment["PASSWORD"] == "p&ss $word %d"
    assert environment["PATH"] == f"{place}/bin:/usr/local/bin:/usr/bin:/bin"
    assert "PASSWORD" not in line


def test_a_line_too_long_for_cron_is_refused(place: Path) -> None:
    with pytest.raises(UserError, match="use shorter paths, or systemd"):
        install("cron", [*command(place), "x" * 900], directory=place)


def test_a_machine_without_cron_or_one_that_forbids_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "crontab", "#!/bin/sh\necho 'You are not allowed' >&2; exit 1\n")
    with pytest.raises(UserError, match="cannot be read: You are not allowed"):
        install("cron", command(place), directory=place)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"this machine has no cron .* --install systemd"):
        install("cron", command(place), directory=place)


def units() -> list[Path]:
    return sorted((config() / "systemd" / "user").glob("*"))


def calls(tmp_path: Path) -> list[str]:
    path = tmp_path / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_the_units_are_written_started_and_removed(place: Path, tmp_path: Path) -> None:
    said = install("systemd", command(place), directory=place)
    assert not config().exists()
    assert calls(tmp_path) == []
    written = install("systemd", command(place), directory=place, write=True)
    assert [path.name for path in units()] == ["calsweep-nightly.service", "calsweep-nightly.timer"]
    for path in units():
        assert f"would be written: {path}\n{path.read_text()}" in said
        assert f"written: {path}\n" in written
    assert f"loginctl enable-linger {getpass.getuser()}" in written
    assert calls(tmp_path)[1:] == [
        "--user daemon-reload",
        "--user enable calsweep-nightly.timer",
        "--user restart calsweep-nightly.timer",
    ]
    before = [path.read_text() for path in units()]
    install("systemd", command(place), directory=place, write=True)
    assert [path.read_text() for path in units()] == before
    install("systemd", command(place), directory=place, name="other", write=True)
    assert str(units()[0]) in install("systemd", command(place), directory=place, remove=True)
    assert len(units()) == 4
    install("systemd", command(place), directory=place, remove=True, write=True)
    assert [path.name for path in units()] == ["calsweep-other.service", "calsweep-other.timer"]
    assert calls(tmp_path)[-2:] == [
        "--user disable --now calsweep-nightly.timer",
        "--user daemon-reload",
    ]
    said = install("systemd", command(place), directory=place, remove=True, write=True)
    assert "nothing to remove" in said


def test_systemd_reads_the_units_as_they_were_meant(place: Path, tmp_path: Path) -> None:
    """Its own check has no complaint, and its own dump of what it read has every word."""
    install("systemd", command(place), at="03:05", directory=place, write=True, time_limit=6000)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environment = os.environ | {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)}
    check = ["systemd-analyze", "verify", "--user", "--man=no", *map(str, units())]
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
    assert service["EnvironmentFile"] == f"-{config()}/calsweep/nightly.env"
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


def test_a_path_without_oddities_stands_in_the_unit_as_it_is(tmp_path: Path) -> None:
    run = program(tmp_path / "run", "#!/bin/sh\n")
    said = install("systemd", [str(run), "nightly"], directory=tmp_path)
    assert f"ExecStart={run} nightly\n" in said


def test_a_machine_without_systemd_or_a_manager_that_does_not_answer(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = "#!/bin/sh\n[ $2 = --version ] || { echo 'Failed to connect to bus' >&2; exit 1; }\n"
    program(tmp_path / "bin" / "systemctl", refuse)
    with pytest.raises(UserError, match=r"daemon-reload: Failed to connect to bus; .* cron"):
        install("systemd", command(place), directory=place, write=True)
    for path in units():
        path.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"this machine has no systemd .* --install cron"):
        install("systemd", command(place), directory=place, write=True)
    assert units() == []


@pytest.mark.parametrize("kind", ["cron", "systemd"])
def test_credentials_have_a_file_that_only_its_user_reads(
    kind: Literal["cron", "systemd"], place: Path
) -> None:
    path = config() / "calsweep" / "nightly.env"
    said = install(kind, command(place), directory=place)
    assert f"{path} (mode 0600) would be made" in said
    assert not path.exists()
    install(kind, command(place), directory=place, write=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(line.startswith("#") for line in path.read_text().splitlines())
    path.write_text("PASSWORD='x'\n")
    install(kind, command(place), directory=place, write=True)
    assert path.read_text() == "PASSWORD='x'\n"
    path.chmod(0o644)
    said = install(kind, command(place), directory=place)
    assert "can be read by others; chmod 600" in said
    said = install(kind, command(place), directory=place, remove=True, write=True)
    assert f"{path} stays" in said
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tracking", "http://me:hidden@host"], r"http://\*\*\*@host: .* MLFLOW_TRACKING_PASS"),
        (["--webhook", "https://host/hidden"], "as CALSWEEP_WEBHOOK"),
        (["--webhook=https://host/hidden"], "as CALSWEEP_WEBHOOK"),
        (["two\nlines"], "control characters"),
        (["back\\slash"], "backslashes"),
    ],
)
def test_what_must_not_stand_in_a_schedule_is_refused(
    arguments: list[str], message: str, place: Path
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        install("cron", [*command(place), *arguments], directory=place, write=True)
    assert "hidden" not in str(caught.value)
    assert not config().exists()


def test_mistakes_are_named(place: Path) -> None:
    for at in ("24:00", "2", "02:60", "2 am", "-1:00"):
        with pytest.raises(UserError, match="from 00:00 to 23:59"):
            install("cron", command(place), at=at, directory=place)
    with pytest.raises(UserError, match="absolute path"):
        install("cron", ["calsweep", "nightly"], directory=place)
    with pytest.raises(UserError, match="no such directory"):
        install("cron", command(place), directory=place / "nowhere")
    with pytest.raises(UserError, match="the name 'two words'"):
        install("cron", command(place), directory=place, name="two words")


def test_the_ready_files_are_what_would_be_installed() -> None:
    home = Path("/srv/calsweep")
    words = [".venv/bin/python", "-m", "sweeps.cli", "nightly", "--nights", "nights"]
    ready = Schedule(
        name="nightly",
        command=(str(home / words[0]), *words[1:-1], str(home / words[-1])),
        directory=home,
        hour=2,
        minute=0,
        time_limit=2400.0,
        config=home / ".config",
    )
    assert (READY / "crontab").read_text() == crontab.line(ready) + "\n"
    for path, text in systemd_units.units(ready).items():
        assert (READY / path.name).read_text() == text
