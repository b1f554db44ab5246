"""``calsweep ui`` as a process, and what a person sees behind the addresses that it prints."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from mlflow.tracking import MlflowClient
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait

from sweeps.cli.main import main
from tests.browser import browser
from tests.ports import free_port
from tests.waiting import LIMIT, wait_until_gone

pytestmark = pytest.mark.slow

T = TypeVar("T")


@dataclass
class Ui:
    """A running ``calsweep ui``, what it printed, and its links by name."""

    process: subprocess.Popen[str]
    printed: str
    links: dict[str, str]


@contextlib.contextmanager
def started(directory: Path, *arguments: str) -> Iterator[Ui]:
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeps.cli", "ui", *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        printed = "".join(lines)
        links = dict(re.findall(r"^  (\w+) .*\n +(http\S+)$", printed, re.MULTILINE))
        yield Ui(process, printed, links)
    finally:
        process.kill()
        process.wait()


def family(ui: Ui) -> list[psutil.Process]:
    return psutil.Process(ui.process.pid).children(recursive=True)


@pytest.fixture(scope="module")
def ui(swept: tuple[Path, str]) -> Iterator[Ui]:
    with started(swept[0], "tiny") as running:
        yield running


@pytest.fixture(scope="module")
def page() -> Iterator[Chrome]:
    with browser(1600, 1200) as driver:
        yield driver


def see(page: Chrome, address: str, what: Callable[[Chrome], T]) -> T:
    """Open an address anew and wait for what should be there, an error meaning: not yet."""
    page.get("about:blank")  # an address that differs after its # alone would load nothing
    page.get(address)
    found = WebDriverWait(page, LIMIT, ignored_exceptions=(Exception,)).until(what)
    assert found
    return found


def text(page: Chrome) -> str:
    return str(page.execute_script("return document.body.innerText"))


def shows(*words: str) -> Callable[[Chrome], bool]:
    return lambda page: all(word in text(page) for word in words)


def confirmed(directory: Path) -> list[tuple[str, str]]:
    """The ids and names of the confirmed runs."""
    client = MlflowClient(f"sqlite:///{directory / 'runs' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.`calsweep.phase` = 'confirm'")
    return [(run.info.run_id, run.info.run_name) for run in runs]


def test_links_are_printed_when_the_server_answers(ui: Ui) -> None:
    expected = {"results", "charts", "compare", "search", "table", "report", "sweep"}
    assert set(ui.links) == expected
    base = ui.links["results"].partition("/#/")[0]
    with urllib.request.urlopen(f"{base}/health") as answer:
        assert answer.status == 200


def test_the_results_show_the_runs_by_name_with_their_metrics(
    ui: Ui, page: Chrome, swept: tuple[Path, str]
) -> None:
    names = [name for _, name in confirmed(swept[0])]
    assert len(names) == 4
    answer = ("calsweep.winner", "calsweep.calibrator", "calsweep.validation_nll")
    script = """const column = `[role=row] [col-id="tags.\\`${arguments[0]}\\`"]`;
      return [...document.querySelectorAll(column)].map(cell => cell.innerText)
        .filter(text => text && !text.startsWith('calsweep'))"""

    def column(page: Chrome, name: str) -> list[str]:
        cells = page.execute_script(script, f"calsweep.{name}")
        return cells if len(cells) == len(names) else []

    # Only the confirmed runs, flat, with numbers in their cells.
    see(page, ui.links["results"], shows("calsweep.place", "4 matching runs", *answer, *names))
    wait = WebDriverWait(page, LIMIT)
    columns = [
        wait.until(lambda page, name=name: column(page, name)) for name in ("place", "winner")
    ]
    assert columns == [["1", "1", "2", "2"], ["true", "true", "false", "false"]]


def test_the_charts_have_one_colour_per_row(ui: Ui, page: Chrome, swept: tuple[Path, str]) -> None:
    names = [name for _, name in confirmed(swept[0])]
    see(page, ui.links["charts"], shows("What decides: validation NLL", *names))
    # The plot is drawn, and drawn again, after its title: counted in one look at the page.
    script = """const plot = document.querySelector('.js-plotly-plot');
      const bars = plot ? [...plot.querySelectorAll('.bars path')] : [];
      return bars.length == 4 ? bars.map(bar => getComputedStyle(bar).fill) : []"""
    colours = WebDriverWait(page, LIMIT).until(lambda page: page.execute_script(script))
    assert len(set(colours)) == 2
    assert {colours.count(colour) for colour in colours} == {2}


def test_the_search_lists_its_trials_and_their_settings(ui: Ui, page: Chrome) -> None:
    see(page, ui.links["search"], shows("selected/nll", "standard blobs-1.7 #0", "gamma"))


def test_the_compare_page_has_one_run_of_every_row(ui: Ui, page: Chrome) -> None:
    names = ("standard blobs-1.7 seed 1", "focal blobs-1.7 seed 1")
    see(page, ui.links["compare"], shows("Comparing 2 Runs", "selected/ace", *names))


def test_the_leaderboard_is_shown_as_a_table(ui: Ui, page: Chrome) -> None:
    see(
        page,
        ui.links["table"],
        shows("View as table", "calibrator", "isotonic_top_label", "oracle"),
    )


def test_the_sweeps_run_has_its_description_and_the_winners_metrics(ui: Ui, page: Chrome) -> None:
    see(page, ui.links["sweep"], shows("Description", "winner/ece/blobs-1.7", "calsweep.datasets"))


def test_the_report_is_shown_among_the_files(ui: Ui, page: Chrome) -> None:
    frame = "return document.querySelector('iframe') !== null"
    see(page, ui.links["report"], lambda page: page.execute_script(frame))
    assert "report.html" in text(page)


def test_the_reliability_figure_is_displayed(ui: Ui, page: Chrome, swept: tuple[Path, str]) -> None:
    run_id, name = confirmed(swept[0])[0]
    root = ui.links["sweep"].partition("/runs/")[0]
    widths = "return [...document.images].map(image => image.naturalWidth)"
    see(
        page,
        f"{root}/runs/{run_id}/artifacts/reliability.png",
        lambda page: max(page.execute_script(widths), default=0) > 200,
    )
    assert name in text(page)


def test_killed_hard_it_leaves_no_server_behind(swept: tuple[Path, str]) -> None:
    """And the port is the next free one, as the other ``ui`` has the first."""
    with started(swept[0]) as running:
        assert "tiny\n" in running.printed
        processes = family(running)
        assert len(processes) >= 2
        running.process.kill()
        wait_until_gone(processes)


def test_a_server_that_others_keep_is_linked_to_and_not_started(
    ui: Ui, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ui.links["sweep"].partition("/#/")[0]
    arguments = ["ui", named_in_a_spec(tmp_path, base.replace("http://", "http://me:s3cret@"))]
    before = len(family(ui))
    assert main(arguments) == 0
    printed = "".join(capsys.readouterr().out.split())
    for link in ui.links.values():
        assert link in printed
    assert "s3cret" not in printed
    assert len(family(ui)) == before


def named_in_a_spec(directory: Path, uri: str) -> str:
    """A spec's file: a password may not stand on the command line."""
    path = directory / "spec.yaml"
    path.write_text(f"name: tiny\ntracking: {uri}\n")
    return str(path)


def test_a_server_that_is_away_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    uri = f"http://me:s3cret@127.0.0.1:{port}"
    assert main(["ui", named_in_a_spec(tmp_path, uri)]) == 1
    complaint = capsys.readouterr().err
    assert f"http://***@127.0.0.1:{port} does not answer" in complaint
    assert "s3cret" not in complaint


@pytest.mark.parametrize("form", ["{}", "{{uri: {}, experiment: mine}}"])
def test_the_server_that_a_spec_names_is_asked(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "http://127.0.0.1:9"  # nobody answers there
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"name: s\ntracking: {form.format(address)}\n")
    assert main(["ui", str(spec), "--store", str(tmp_path)]) == 1
    assert f"the MLflow server at {address} does not answer" in capsys.readouterr().err


def test_mistakes_are_told_in_one_line(
    swept: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(swept[0] / "runs")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            ("tinny", *store): "no sweep 'tinny'; there are: tiny",
            ("tiny", *store, "--port", port): f"--port {port} is taken",
            ("--store", "nowhere"): "run a sweep first",
            ("other.yaml",): "other.yaml: there is no such file",
            ("--tracking", "htp://x"): "--tracking: found 'htp://x'",
        }
        for arguments, complaint in cases.items():
            assert main(["ui", *arguments]) == 2
            told = capsys.readouterr().err
            assert complaint in told
            assert told.count("\n") == 1


def test_ctrl_c_ends_it_in_order(ui: Ui) -> None:
    """The last of the tests that use it."""
    processes = family(ui)
    ui.process.send_signal(signal.SIGINT)
    assert ui.process.wait(LIMIT) == 0
    wait_until_gone(processes)
