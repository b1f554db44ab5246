"""The report of a real sweep comes out, whatever its names are and whatever part of it fails."""

from __future__ import annotations

import csv
import io
import logging
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console
from selenium.webdriver.common.by import By

from calibration.text import visible
from sweeps.export.card import card
from sweeps.export.choice import choose
from sweeps.export.package import Wish, assemble
from sweeps.host.console import Terminal, say
from sweeps.report.attempts import Attempts
from sweeps.report.csv_table import csv as as_csv
from sweeps.report.terminal import print_leaderboard
from sweeps.report.write import WrittenReport, write_report
from sweeps.spec import ORACLE
from sweeps.store import StoreError
from sweeps.sweep import Sweep
from tests.browser import browser, console_errors
from tests.sweeps.hostile import CLASSES, DATA, FORMULA, MARKUP, MATHS, ROWS, hostile_sweep
from tests.tracked import put_database
from tests.trained import train_sweep

pytestmark = pytest.mark.slow

SHOWN_DATA = visible(DATA)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
TEXTS = ("comparisons.csv", "costs.csv", "importance.csv", "leaderboard.csv", "results.csv")
TEXTS += ("leaderboard.md", "leaderboard.tex", "leaderboard.svg", "report.html")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return hostile_sweep(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def written(sweep: Sweep) -> WrittenReport:
    return write_report(sweep.records, sweep.store)


def file(sweep: Sweep, name: str) -> str:
    content = sweep.store.read_file(sweep.name, name)
    assert content is not None, name
    return content.decode()


def test_the_report_is_whole_and_sends_no_control_character(
    sweep: Sweep, written: WrittenReport
) -> None:
    assert written.failures == {}
    for name in TEXTS:
        assert not CONTROL.search(file(sweep, name).split("<script>")[0]), name
    assert not CONTROL.search(written.summary)
    pictures = {name.rpartition("_")[2] for name in sweep.store.files(sweep.name, "figures")}
    assert pictures == {"reliability.png", "bins.png", "coverage.png", "ece-curve.png"}
    for cell in sweep.records.cells.values():
        for trial in cell.confirmed:
            assert sweep.store.extra(trial.record, "reliability.png") is not None


def table_cells(sweep: Sweep) -> Iterator[str]:
    for name in TEXTS[:5]:
        for line in csv.reader(io.StringIO(file(sweep, name))):
            yield from line


def test_a_spreadsheet_computes_nothing(sweep: Sweep, written: WrittenReport) -> None:
    numbers = 0
    for cell in table_cells(sweep):
        if cell.startswith(("=", "+", "-", "@")):
            float(cell)  # what may begin so is a number
            numbers += cell.startswith("-")
    assert numbers > 0
    table = pd.read_csv(io.StringIO(file(sweep, "leaderboard.csv")))
    assert f"'{FORMULA}" in set(table["row"])
    assert set(table["dataset"]) == {f"'{SHOWN_DATA}"}
    assert {MATHS, MARKUP} < set(table["row"])
    assert table["ece"].dtype == np.float64
    content = sweep.store.read_file(sweep.name, "results.parquet")
    assert content is not None
    kept = pd.read_parquet(io.BytesIO(content))
    assert set(kept["row"]) == set(ROWS)
    assert set(kept["dataset"]) == {DATA}


def test_only_texts_are_quoted() -> None:
    odd = ["-1.5", "+2", "-0.1 -0.2", "-x", "@a", "\t=b", "a;=b", "＝c", " =d", "plain", "-"]
    table = pd.DataFrame({"=name": odd, "number": np.arange(11) - 5.5, "sure": True, "none": None})
    read = list(csv.reader(io.StringIO(as_csv(table).decode())))
    assert read[0] == ["'=name", "number", "sure", "none"]
    assert [line[0] for line in read[1:]] == [
        *("-1.5", "+2", "-0.1 -0.2", "'-x", "'@a", r"\t=b", "a;'=b", "'＝c", "' =d", "plain", "'-")
    ]
    assert [float(line[1]) for line in read[1:]] == table["number"].tolist()
    assert {tuple(line[2:]) for line in read[1:]} == {("True", "")}


def test_the_terminal_and_its_picture_show_names_as_they_are(
    sweep: Sweep, written: WrittenReport
) -> None:
    for kind in (Console, Terminal):
        console = kind(file=io.StringIO(), width=400, force_terminal=True, color_system=None)
        print_leaderboard(written.analysis, sweep.records, console)
        say(console, MARKUP, f"reason: {DATA}")
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        for name in (*ROWS, SHOWN_DATA, f"NLL vs {MATHS}", f"reason: {SHOWN_DATA}"):
            assert name in printed
        assert "\x1b[31m" not in printed
        assert "\u202e" not in printed
    drawn = ET.fromstring(file(sweep, "leaderboard.svg"))
    said = "".join(drawn.itertext()).replace("\xa0", " ")
    for name in (*ROWS, SHOWN_DATA):
        assert name in said


def test_markdown_and_latex_keep_their_cells(sweep: Sweep, written: WrittenReport) -> None:
    lines = file(sweep, "leaderboard.md").splitlines()
    rows = [re.split(r"(?<!\\)\|", line) for line in lines if line.startswith("|")]
    assert {len(cells) for cells in rows} == {11}
    names = [re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cells[1].strip(" ★")) for cells in rows[2:]]
    assert set(names) == set(ROWS)
    assert not set("<$`[]~&") & set(re.sub(r"\\.", "", written.summary))
    body = file(sweep, "leaderboard.tex").split(r"\midrule")[1].split(r"\bottomrule")[0]
    plain = re.sub(r"\\[{}$&#%_]", "", body).replace(r"$\star$", "")
    assert plain.count("{") == plain.count("}")
    assert {line.count("&") for line in plain.strip().splitlines()} == {8}
    assert "$" not in plain


def test_the_model_card_names_classes_visibly(sweep: Sweep) -> None:
    chosen = choose(sweep.records, sweep.analysis)
    package = assemble(sweep.loaded, sweep.store, chosen, Wish())
    text = card(package, Path("a\n```\x1b[31m"))
    assert not CONTROL.search(text)
    assert r"`\x1b[31mred\x1b[0m`" in text
    assert CLASSES[1].replace("|", r"\|").replace("`", "'") in text
    assert sum(line.startswith("```") for line in text.splitlines()) == 4
    heading = text.splitlines()[0]
    assert not set("<$[`*") & set(re.sub(r"\\.", "", heading))


def test_a_browser_shows_names_as_they_are(sweep: Sweep, written: WrittenReport) -> None:
    with browser(1280, 900) as driver:
        page = Path(sweep.store.location(sweep.name, "report.html")).resolve()
        driver.get(page.as_uri())
        assert driver.find_elements(By.CSS_SELECTOR, "h2 b, th script, nav b, figcaption i") == []
        heads = [each.text for each in driver.find_elements(By.TAG_NAME, "h2")]
        assert SHOWN_DATA in heads
        rows = driver.find_elements(By.CSS_SELECTOR, "table.leaderboard tbody th")
        shown = {each.text.removesuffix(" ★") for each in rows}
        assert shown >= set(ROWS)
        # What appears when the pointer rests on a point is plotly's own drawing of the name.
        hover = driver.execute_async_script("""
            const [done] = arguments, place = document.querySelector('.chart .plot'), said = [];
            place.scrollIntoView();
            const name = () => place.querySelector('.hoverlayer text')?.firstChild.textContent;
            const show = number => {
              if (!place.data) return setTimeout(show, 20, number);
              if (number === place.data.length) return done(said);
              if (place.data[number].hoverinfo === 'skip') return show(number + 1);
              Plotly.Fx.hover(place, [{curveNumber: number, pointNumber: 0}]);
              const wait = () => {  // it is drawn a moment later
                if (!name() || said.includes(name())) return setTimeout(wait, 20);
                said.push(name());
                show(number + 1);
              };
              wait();
            };
            show(0);""")
        assert set(hover) == set(ROWS)
        assert console_errors(driver) == []


PLAIN = """\
name: plain
datasets: [{name: blobs-1.7, points: 100, test_points: 100}]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: 0.05, weight_decay: 0}}
training: {epochs: 1}
confirm_seeds: 1
calibrators: [temperature]
"""


def broken(reason: str = "it <b>broke</b>") -> Callable[..., NoReturn]:
    def fail(*given: Any, **named: Any) -> NoReturn:
        raise RuntimeError(reason)

    return fail


def test_what_fails_costs_itself_and_is_named(
    sweep: Sweep,
    written: WrittenReport,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A figure, an export and a section fail; all others are as they were."""
    monkeypatch.setattr("calibration.plots.bin_robustness", broken())
    monkeypatch.setattr("sweeps.report.exports.latex", broken())
    monkeypatch.setattr("sweeps.report.sections.reliability.reliability_charts", broken("\x1b[31m"))
    files: dict[str, bytes] = {}
    with caplog.at_level(logging.WARNING, logger="calsweep"):
        found = write_report(sweep.records, sweep.store, write=files.__setitem__)
    (bins,) = [n for n in sweep.store.files(sweep.name, "figures") if n.endswith("_bins.png")]
    section = f"the section 'Reliability' of {DATA}"
    assert found.failures == {
        "leaderboard.tex": "RuntimeError: it <b>broke</b>",
        bins: "RuntimeError: it <b>broke</b>",
        section: r"RuntimeError: \x1b[31m",
    }
    before = {*sweep.store.files(sweep.name), *sweep.store.files(sweep.name, "figures")}
    missing = {name for name in before if name.endswith((".csv", ".md", ".tex", ".svg", ".png"))}
    assert missing - set(files) == {"leaderboard.tex", bins}
    for name in (*TEXTS[:5], "results.parquet", "leaderboard.md", "leaderboard.svg"):
        assert files[name] == sweep.store.read_file(sweep.name, name), name
    page = files["report.html"].decode()
    said = page[page.index('<section id="missing">') :].split("</section>")[0]
    assert said.count("<li") == 3
    assert "it &lt;b&gt;broke&lt;/b&gt;" in said
    headings = re.findall("<h[23]>([^<]*)</h[23]>", page)
    whole = re.findall("<h[23]>([^<]*)</h[23]>", file(sweep, "report.html"))
    assert [head for head in whole if head not in headings] == ["Reliability"]
    assert "leaderboard.tex (RuntimeError" in found.summary
    assert [record.getMessage() for record in caplog.records] == [
        f"report: {visible(name)} could not be made: {why}" for name, why in found.failures.items()
    ]


@pytest.mark.parametrize(
    "parts",
    [
        {
            "sections.summary.headlines": ["the summary", "the section 'Summary'"],
            "sections.provenance._failed": ["the section 'How it was made'"],
            "sections.facts.rendered": [f"the section 'Facts' of {DATA}"],
            "sections.leaderboard.leaderboard_table": [f"the section 'Leaderboard' of {DATA}"],
            "sections.trade_offs.cost_chart": [f"the section 'Trade-offs' of {DATA}"],
            "sections.bins.coverage_chart": [f"the section 'Bins and abstention' of {DATA}"],
            "sections.training.curves_chart": [f"the section 'Training' of {DATA}"],
            "sections.tables.comparisons_table": [f"the section 'Tables' of {DATA}"],
        },
        {"gather.drawn_row": [f"the diagrams of {row} on {DATA}" for row in ROWS]},
    ],
    ids=["sections", "diagrams"],
)
def test_the_page_outlives_its_parts(
    sweep: Sweep, parts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.report.write.figures", lambda *_: iter(()))  # drawn above
    for part in parts:
        monkeypatch.setattr(f"sweeps.report.{part}", broken())
    monkeypatch.setattr("sweeps.report.write.headlines", broken())
    files: dict[str, bytes] = {}
    found = write_report(sweep.records, sweep.store, write=files.__setitem__)
    expected = {name for names in parts.values() for name in names} | {"the summary"}
    assert set(found.failures) == expected
    page = files["report.html"].decode()
    assert "<h1>hostile</h1>" in page
    assert page.count("RuntimeError: it &lt;b&gt;broke") == len(expected)
    assert found.summary.startswith("# hostile\n")
    assert "results.parquet" in files


@pytest.mark.parametrize("error", [StoreError("full"), KeyboardInterrupt(), SystemExit(1)])
def test_a_full_disk_and_an_interruption_end_the_report(error: BaseException) -> None:
    def write() -> NoReturn:
        raise error

    with pytest.raises(type(error)):
        Attempts().part("results.csv", write, None)


def test_a_trial_outlives_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("calibration.plots.reliability_diagram", broken())
    trained = train_sweep(tmp_path, PLAIN, pictures=True)
    (trial,) = trained.plan.confirmed("blobs-1.7", "standard")
    record = trained.store.record(trial.key)
    assert record is not None
    assert record.status == "done"
    calibrators = trained.store.evaluations(record, trained.spec.evaluation.tag)
    assert set(calibrators) == {"identity", "temperature", ORACLE}
    assert trained.store.extra(record, "reliability.png") is None
    (said,) = [record.getMessage() for record in caplog.records if record.name == "calsweep"]
    assert "reliability.png could not be drawn: RuntimeError: it <b>broke</b>" in said


COMMAND = """
import sys
import calibration.plots
from sweeps.cli.main import main

def fail(*given, **named):
    raise RuntimeError("it broke")

calibration.plots.bin_robustness = fail
sys.exit(main(sys.argv[1:]))
"""


def test_a_command_whose_figure_fails_finishes_in_mlflow_and_says_so_by_its_exit_code(
    tmp_path: Path,
) -> None:
    train_sweep(tmp_path, PLAIN)
    put_database(tmp_path / "runs")
    for command in ("run", "sync"):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, command, "spec.yaml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "_bins.png could not be made: RuntimeError: it broke" in done.stderr
        assert "Traceback" not in done.stdout + done.stderr
    client = MlflowClient(f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("plain")
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 2
    (sweep,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    published = {item.path for item in client.list_artifacts(sweep.info.run_id)}
    assert published >= {"leaderboard.csv", "report.html", "figures"}
    figures = {item.path for item in client.list_artifacts(sweep.info.run_id, "figures")}
    assert any(name.endswith("_coverage.png") for name in figures)
    assert not any(name.endswith("_bins.png") for name in figures)
