"""Seconds by stage: every second is counted once, whoever calls whom."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
from rich.console import Console

from sweeps.cli import run
from sweeps.host.stages import Stages


def test_an_inner_stage_counts_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    stages = Stages()

    @stages.stage("report")
    def report() -> None:
        now[0] += 1
        for _ in range(2):
            with stages.stage("analysis"):
                now[0] += 2
        with suppress(ZeroDivisionError), stages.stage("analysis"):
            now[0] += 4
            raise ZeroDivisionError

    with stages.stage("whole"):
        now[0] += 16
        report()
        report()
    assert stages.take() == {"report": 2, "analysis": 16, "whole": 16}
    assert stages.take() == {}


def test_threads_do_not_count_for_each_other() -> None:
    stages = Stages()
    with stages.stage("outer"):
        other = threading.Thread(target=stages.stage("other")(lambda: time.sleep(0)))
        other.start()
        other.join()
        assert stages._inner.seconds == 0
    assert stages.take().keys() == {"outer", "other"}


def test_the_table_shows_both_sides_and_begins_with_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "THIS_PROCESS", Stages())
    monkeypatch.setattr(run, "WORKERS", Stages())
    run.THIS_PROCESS.add({"imports": 1.5, "Ray start": 4.0})
    run.WORKERS.add({"train": 20.0, "imports": 3.0})
    console = Console(width=60)
    with console.capture() as shown:
        run._print_profile(console)
    lines = [line.split() for line in shown.get().splitlines()[1:4]]
    assert lines == [["train", "20.00"], ["imports", "1.50", "3.00"], ["Ray", "start", "4.00"]]
