"""Whether a night has arrived: made-up nights, and the command."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from sweeps.cli.main import main
from sweeps.nightly.archive.nights import Nights, NightState, Status, now
from sweeps.nightly.run.unattended import one_at_a_time
from sweeps.nightly.watch import watch
from tests.sweeps.nightly.report.test_webhook import server

HOUR = 3600.0


def night(nights: Nights, hours_ago: float, status: Status = "complete") -> None:
    """A night that ended so long ago, or began then and runs."""
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours_ago)
    said = moment.isoformat(timespec="seconds")
    ended = "" if status == "running" else said
    date = moment.date().isoformat()
    state = NightState(suite="nightly", night=date, status=status, began=said, ended=ended)
    nights.write_state(state)


def test_silence_is_no_good_news(tmp_path: Path) -> None:
    nights = Nights(tmp_path, "nightly")
    assert not watch(nights).arrived
    night(nights, 50)
    old = watch(nights)
    assert not old.arrived
    assert old.words.startswith("no night of nightly in the last 26 h: the night of ")
    assert watch(nights, 60 * HOUR).arrived
    night(nights, 25, "failed")
    assert watch(nights).arrived, "it came, and said that it failed"


@pytest.mark.parametrize(("hours", "arrived"), [(3, True), (27, False)])
def test_a_night_that_runs_for_more_than_a_day_has_not_arrived(
    tmp_path: Path, hours: float, arrived: bool
) -> None:
    nights = Nights(tmp_path, "nightly")
    night(nights, hours, "running")
    with one_at_a_time(nights.directory):
        assert watch(nights).arrived == arrived


def test_a_night_that_was_killed_has_not_arrived(tmp_path: Path) -> None:
    """It told nobody, and the next one may be killed, too."""
    nights = Nights(tmp_path, "nightly")
    night(nights, 30)
    night(nights, 2, "running")
    killed = watch(nights)
    assert not killed.arrived, "nobody holds its lock"
    assert killed.words.endswith("UTC and was killed")
    (state,) = (s for n in nights.dates() if (s := nights.state(n)) and s.status == "running")
    with one_at_a_time(nights.directory):  # as a killed process on another machine leaves it
        nights.write_state(state.model_copy(update={"ends_by": now(60)}))
        assert watch(nights).arrived
        nights.write_state(state.model_copy(update={"ends_by": now(-60)}))
        assert not watch(nights).arrived, "it cannot take so long"
    nights.mark_unfinished("2999-01-01")
    assert watch(nights).words == killed.words


def test_the_command_tells_the_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nights = Nights(tmp_path, "nightly")
    night(nights, 30)
    command = ["nightly", "nightly", "--watch", "--nights", str(tmp_path)]
    with server(200) as (url, received):
        monkeypatch.setenv("CALSWEEP_WEBHOOK", f"slack:{url}")
        assert main(command) == 1
        assert main([*command, "--within", "2d"]) == 0
    (told,) = received
    assert told["message"]["text"] == "nightly: missing"
    assert "no night of nightly in the last 26 h" in capsys.readouterr().out


def test_nights_on_a_disk_that_is_gone_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["nightly", "weekly", "--watch", "--nights", str(tmp_path / "gone")]
    with server(200) as (url, received):
        monkeypatch.setenv("CALSWEEP_WEBHOOK", url)
        assert main(command) == 2
    (told,) = received
    assert (told["message"]["suite"], told["message"]["verdict"]) == ("weekly", "missing")
    reason = "weekly: there is no such file"
    assert told["message"]["sentences"] == [f"The nights cannot be watched: {reason}"]
    assert reason in capsys.readouterr().err
