"""The report of a real small sweep: its files, and its page in a browser."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup
from rich.console import Console
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from sweeps.analysis.results import headline_rows
from sweeps.analysis.selection import CHOSEN_BY
from sweeps.cli.main import report
from sweeps.errors import UserError
from sweeps.report import document
from sweeps.report.attempts import Attempts
from sweeps.report.escaping import markdown_text
from sweeps.report.gather import gather
from sweeps.report.images import Picture
from sweeps.report.page import page
from sweeps.report.section import ReportContext, Section
from sweeps.report.sections import SECTIONS
from sweeps.report.templates import macro
from sweeps.report.write import WrittenReport, write_report
from sweeps.sweep import Sweep
from tests.browser import browser, console_errors, emulate, requests, resize
from tests.sweeps.swept_here import HOSTILE_DATA, HOSTILE_ROW, sweep_here

pytestmark = pytest.mark.slow

LEADERBOARD = "#data-0 table.leaderboard"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_here(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def written(sweep: Sweep) -> WrittenReport:
    return write_report(sweep.records, sweep.store)


@pytest.fixture(scope="module")
def window() -> Iterator[Chrome]:
    with browser(1280, 900) as driver:
        yield driver


@pytest.fixture
def shown(window: Chrome, sweep: Sweep, written: WrittenReport) -> Chrome:
    resize(window, 1280, 900)
    emulate(window)
    window.get(Path(sweep.store.location("small", "report.html")).resolve().as_uri())
    return window


def file(sweep: Sweep, name: str) -> bytes:
    content = sweep.store.read_file("small", name)
    assert content is not None, name
    return content


def draw_all(driver: Chrome) -> int:
    """Bring every chart into view, as a reader would; how many there are."""
    return int(
        driver.execute_async_script("""
        const [done] = arguments, places = [...document.querySelectorAll('.plot')];
        const next = index => {
          if (index === places.length) return done(index);
          places[index].scrollIntoView();
          const wait = () => places[index].data ? next(index + 1) : setTimeout(wait, 5);
          wait();
        };
        next(0);""")
    )


def cells(driver: Chrome, column: int) -> list[float]:
    """The numbers by which a column's visible rows sort, from top to bottom."""
    script = """return [...document.querySelectorAll(arguments[0] + ' tbody tr')]
        .filter(row => row.offsetParent).map(row => row.cells[arguments[1]].dataset.v)"""
    found = driver.execute_script(script, LEADERBOARD, column)
    return [float(value) if value else np.nan for value in found]


def heading(driver: Chrome, text: str) -> WebElement:
    heads = driver.find_elements(By.CSS_SELECTOR, f"{LEADERBOARD} thead th")
    return next(head for head in heads if head.text.split("\n")[0].rstrip(" ↑↓") == text)


def test_all_files_are_written(sweep: Sweep, written: WrittenReport) -> None:
    tidy = pd.read_parquet(io.BytesIO(file(sweep, "results.parquet")))
    assert written.analysis is not None
    pd.testing.assert_frame_equal(tidy, written.analysis.results)
    read = pd.read_csv(io.BytesIO(file(sweep, "results.csv")))
    assert read["nll"].to_numpy() == pytest.approx(tidy["nll"].to_numpy(), rel=1e-6, nan_ok=True)
    table = pd.read_csv(io.BytesIO(file(sweep, "leaderboard.csv")))
    assert {"ece_ci_low", "ece_ci_high"} <= set(table.columns)
    compared = pd.read_csv(io.BytesIO(file(sweep, "comparisons.csv")))
    assert set(compared["metric"]) == {"ece", "nll", "brier", "error"}
    costs = pd.read_csv(io.BytesIO(file(sweep, "costs.csv")))
    assert len(costs) == 6
    assert costs["failed"].sum() == 1
    assert set(pd.read_csv(io.BytesIO(file(sweep, "importance.csv")))["hyperparameter"]) == {"lr"}
    assert b"| NLL vs standard |" in file(sweep, "leaderboard.md")
    assert rb"\toprule" in file(sweep, "leaderboard.tex")
    figures = sweep.store.files("small", "figures")
    endings = ("reliability", "bins", "coverage", "ece-curve", "bo4sc-weights", "regions")
    names = {f"blobs-1.7_{ending}.png" for ending in endings}
    assert names <= {Path(name).name for name in figures}


def test_the_page_is_small_and_asks_for_nothing(shown: Chrome, sweep: Sweep) -> None:
    assert len(file(sweep, "report.html")) < document.PAGE_LIMIT
    assert draw_all(shown) > 10
    assert console_errors(shown) == []
    assert requests(shown) == []


def test_hostile_names_are_text(shown: Chrome) -> None:
    draw_all(shown)
    assert shown.title == "small · calsweep"
    assert shown.find_elements(By.CSS_SELECTOR, "img[src=x], h2 i, nav i") == []
    heads = [each.text for each in shown.find_elements(By.TAG_NAME, "h2")]
    assert HOSTILE_DATA in heads
    rows = shown.find_elements(By.CSS_SELECTOR, f"{LEADERBOARD} tbody th")
    assert HOSTILE_ROW in [each.text for each in rows]
    legends = [each.text for each in shown.find_elements(By.CSS_SELECTOR, ".legend button")]
    assert HOSTILE_ROW in legends
    assert "<b>as planned</b>" in shown.find_element(By.ID, "made").text


def test_a_heading_sorts_by_number_with_mouse_and_keyboard(shown: Chrome) -> None:
    head = heading(shown, "NLL")
    column = shown.execute_script("return arguments[0].cellIndex", head)
    before = cells(shown, column)
    head.find_element(By.TAG_NAME, "button").click()
    assert cells(shown, column) == sorted(before)
    assert head.get_attribute("aria-sort") == "ascending"
    head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert cells(shown, column) == sorted(before, reverse=True) != sorted(before)
    assert head.get_attribute("aria-sort") == "descending"
    # As text, 10 would come before 9: numbers decide, and unknown ones come last both ways.
    train = heading(shown, "train").find_element(By.TAG_NAME, "button")
    column = shown.execute_script("return arguments[0].closest('th').cellIndex", train)
    for _ in range(2):
        train.click()
        assert np.isnan(cells(shown, column)[-1])
        assert heading(shown, "NLL").get_attribute("aria-sort") == "none"


def test_all_rows_are_there_when_asked_for(shown: Chrome, written: WrittenReport) -> None:
    everything = (written.analysis.leaderboard["dataset"] == "blobs-1.7").sum()
    few = len(cells(shown, 0))
    assert few < everything
    buttons = shown.find_elements(By.CSS_SELECTOR, "#data-0 .tools fieldset button")
    buttons[1].click()
    assert len(cells(shown, 0)) == everything
    assert [b.get_attribute("aria-pressed") for b in buttons] == ["false", "true"]
    buttons[0].click()
    assert len(cells(shown, 0)) == few


def test_intervals_are_drawn_to_scale(shown: Chrome, written: WrittenReport) -> None:
    """On one scale, pixels and numbers are related by a line, in all rows of a metric."""
    script = """return [...document.querySelectorAll(arguments[0] + ' tbody tr')]
      .filter(row => row.offsetParent).map(row => {
        const cell = row.cells[arguments[1]], box = e => e && e.getBoundingClientRect();
        const left = box(cell.querySelector('svg')).left, point = box(cell.querySelector('circle'));
        const line = box(cell.querySelector('.i')), floor = box(cell.querySelector('.f'));
        return point && [Number(cell.dataset.v), (point.left + point.right) / 2 - left,
          line.left - left, line.right - left, (floor.left + floor.right) / 2 - left];
      }).filter(Boolean)"""
    column = shown.execute_script("return arguments[0].cellIndex", heading(shown, "ECE"))
    drawn = np.array(shown.execute_script(script, LEADERBOARD, column))
    table = written.analysis.leaderboard[written.analysis.leaderboard["dataset"] == "blobs-1.7"]
    found = [table.loc[(table["ece"] - value).abs().idxmin()] for value in drawn[:, 0]]
    assert len(drawn) >= 5
    slope, start = np.polyfit(drawn[:, 0], drawn[:, 1], 1)
    assert slope > 0
    names = ("ece", "ece_ci_low", "ece_ci_high", "floor")
    for place, name in enumerate(names, start=1):
        expected = start + slope * np.array([row[name] for row in found])
        inside = expected < 128 - 4  # what lies beyond the scale is cut off there
        assert inside.sum() >= 3
        assert drawn[inside, place] == pytest.approx(expected[inside], abs=0.6)
    assert start == pytest.approx(4, abs=0.6)  # ECE begins at zero, after a small margin


def test_reliability_diagrams_show_the_stored_predictions(shown: Chrome, sweep: Sweep) -> None:
    draw_all(shown)
    place = "document.querySelector('#data-0 .panels .plot')"
    name = shown.find_element(By.CSS_SELECTOR, "#data-0 .panels figcaption b").text
    assert name == "standard"
    found = shown.execute_script(f"return {place}.data.map(t => [t.x, t.y, t.error_y, t.yaxis])")
    arrays = sweep.store.predictions(sweep.records.confirmed("blobs-1.7", "standard")[0].record)
    probabilities = arrays["test_logits"].double().softmax(-1).numpy()
    confidence = probabilities.max(1)
    correct = probabilities.argmax(1) == arrays["test_labels"].numpy()
    bins = np.ceil(confidence * 15).astype(int)
    expected = {(b - 0.5) / 15: correct[bins == b].mean() for b in np.unique(bins)}
    x, y, error, _ = found[3]
    assert x == pytest.approx(list(expected), rel=1e-4)
    assert y == pytest.approx(list(expected.values()), rel=1e-4)
    assert all(e >= 0 for e in error["array"])
    assert found[4][3] == "y2"
    counts = [(bins == b).mean() for b in np.unique(bins)]
    assert found[4][1] == pytest.approx(counts, rel=1e-4)
    # And the marks lie where the axes say: the square of the plot is the unit square.
    marks = shown.execute_script(f"""
      const drag = {place}.querySelector('.nsewdrag[data-subplot=xy]');
      const box = drag.getBoundingClientRect();
      return [...{place}.querySelectorAll('.scatterlayer .point')].map(p => {{
        const b = p.getBoundingClientRect();
        return [((b.left + b.right) / 2 - box.left) / box.width,
                (box.bottom - (b.top + b.bottom) / 2) / box.height]; }})""")
    assert np.array(marks) == pytest.approx(np.column_stack([x, y]), abs=0.01)


def test_a_legend_hides_and_shows_its_lines(shown: Chrome) -> None:
    draw_all(shown)
    chart = shown.find_element(By.CSS_SELECTOR, "#data-0 .chart")
    button = chart.find_element(By.CSS_SELECTOR, ".legend button")

    def visible() -> list[Any]:
        script = "return arguments[0].querySelector('.plot').data.map(t => t.visible)"
        return list(shown.execute_script(script, chart))

    shown.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    assert False not in visible()
    button.click()
    assert visible().count(False) == 1
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert False not in visible()


def test_a_phone_scrolls_down_only_and_names_stay_in_view(shown: Chrome) -> None:
    resize(shown, 375, 740)
    draw_all(shown)
    assert shown.execute_script("return document.documentElement.scrollWidth") == 375
    box = "document.querySelector('#data-0 .scroll')"
    assert shown.execute_script(f"return {box}.scrollWidth > {box}.clientWidth")
    places = f"""const box = {box}; box.scrollLeft = arguments[0];
      return [...box.querySelectorAll('tr')].filter(row => row.offsetParent).map(
        row => [row.cells[0], row.cells[1]].map(cell => cell.getBoundingClientRect().left))"""
    before, after = (shown.execute_script(places, left) for left in (0, 80))
    assert [first for first, _ in after] == [first for first, _ in before]
    assert [second for _, second in after] == [second - 80 for _, second in before]


def test_what_decides_stands_beside_its_value_on_test_data(
    shown: Chrome, written: WrittenReport
) -> None:
    heads = shown.find_elements(By.CSS_SELECTOR, f"{LEADERBOARD} thead th")
    titles = [head.text.split("\n")[0] for head in heads]
    assert titles[:3] == ["row", "validation NLL", "NLL"]
    train = heads[titles.index("train")].rect
    assert train["x"] + train["width"] <= 1280, "the cost needs no scrolling"
    table = written.analysis.leaderboard
    rows = headline_rows(table, "blobs-1.7")
    assert cells(shown, 1) == pytest.approx(rows[CHOSEN_BY], rel=1e-5, nan_ok=True)


def test_paper_has_room_for_every_column(shown: Chrome) -> None:
    resize(shown, 720, 1018)  # A4 within its margins
    emulate(shown, media="print")
    assert shown.execute_script("return document.documentElement.scrollWidth") == 720


def test_dark_readers_get_dark_pages_and_plots(shown: Chrome) -> None:
    draw_all(shown)
    script = """const text = document.querySelector('#data-0 .plot .xtick text');
      return [getComputedStyle(document.body).backgroundColor, getComputedStyle(text).fill]"""
    light = shown.execute_script(script)
    emulate(shown, dark=True)
    WebDriverWait(shown, 20).until(lambda _: shown.execute_script(script)[1] != light[1])
    dark = shown.execute_script(script)

    def brightness(colour: str) -> float:
        return sum(float(part) for part in colour.strip("rgb()").split(",")[:3])

    assert brightness(dark[0]) < 150 < 600 < brightness(light[0])
    assert brightness(dark[1]) > brightness(light[1])
    emulate(shown, dark=True, media="print")
    assert brightness(shown.execute_script(script)[0]) == 765
    assert not shown.find_element(By.TAG_NAME, "nav").is_displayed()


def test_the_page_tells_what_failed_and_how_it_was_made(
    shown: Chrome, sweep: Sweep, written: WrittenReport
) -> None:
    text = shown.find_element(By.TAG_NAME, "body").text
    assert "no result on 1 of 3 seeds" in text
    assert "calsweep run small.yaml" in text
    assert sweep.loaded.text.strip() in text.replace("\u00a0", " ")
    source = file(sweep, "report.html").decode()
    for dataset in sweep.loaded.datasets.values():
        assert dataset.fingerprint in source
    assert "torch 2" in source
    for words in ("Noise floor", "Verdict", "confirm 1, 2, 3"):
        assert words in source
    answer = markdown_text(written.analysis.recommendation.sentence)
    assert written.summary.startswith(f"# small\n\n{answer}\n")


def test_what_does_not_fit_is_left_out_and_named(
    sweep: Sweep, written: WrittenReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = written.analysis
    assert analysis is not None
    gathered = gather(sweep.records, analysis.results, analysis.leaderboard, Attempts())
    png = file(sweep, "figures/blobs-1.7_regions.png")
    pictures = [Picture("blobs-1.7_regions", "blobs-1.7", png, "Regions", "About them.")]
    whole = page(sweep.records, analysis, gathered, pictures, None, Attempts())
    limit = len(whole.encode()) + document.RESERVED
    monkeypatch.setattr(document, "PAGE_LIMIT", limit - 10_000)
    less = page(sweep.records, analysis, gathered, pictures, None, Attempts())
    assert len(less.encode()) < document.PAGE_LIMIT
    assert "Regions: see figures/blobs-1.7_regions.png" in less
    assert "data:image/webp" in whole
    assert "data:image/webp" not in less
    monkeypatch.setattr(document, "PAGE_LIMIT", limit - 150_000)
    least = page(sweep.records, analysis, gathered, pictures, None, Attempts())
    assert document.PAGE_LIMIT - 2 * document.RESERVED < len(least.encode()) < document.PAGE_LIMIT
    assert "left out to keep the page small" in least


def test_a_section_is_added_by_its_place_in_the_list(
    sweep: Sweep, written: WrittenReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(context: ReportContext) -> Markup:
        text = f"{len(context.rows)} rows <here>" if context.dataset else "\x1bonce"
        return macro("macros", "note")(text)

    def fail(context: ReportContext) -> Markup:
        raise RuntimeError("broken")

    added = (Section("Once", counted, "once"), Section("Counted", counted), Section("No", fail))
    monkeypatch.setattr("sweeps.report.page.SECTIONS", (*SECTIONS, *added))
    analysis, attempts = written.analysis, Attempts()
    gathered = gather(sweep.records, analysis.results, analysis.leaderboard, attempts)
    text = page(sweep.records, analysis, gathered, [], None, attempts)
    datasets = list(sweep.plan.loaded.datasets)
    for number, dataset in enumerate(datasets):
        found = text.split(f'<section id="data-{number}">')[1].split("</section>")[0]
        rows = (analysis.leaderboard["dataset"] == dataset).sum()
        assert f"{rows} rows &lt;here&gt;" in found
    assert text.count('<section id="data-') == len(datasets)
    assert '<a href="#once">Once</a></div></nav>' in text
    assert "\\x1bonce" in text.split("How it was made</h2>")[1]
    assert list(attempts.failures) == [f"the section 'No' of {dataset}" for dataset in datasets]


def command(sweep: Sweep, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    report.add(parser.add_subparsers())
    options = parser.parse_args(["report", "small", "--store", str(sweep.store.root), *arguments])
    return int(options.command(options, Console()))


def test_the_command_prints_tables(
    sweep: Sweep, written: WrittenReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(sweep, "--format", "markdown") == 0
    assert "| NLL vs standard |" in capsys.readouterr().out
    assert command(sweep, "--format", "latex", "--baseline", "bo4sc") == 0
    assert "NLL vs bo4sc" in capsys.readouterr().out
    assert command(sweep, "--format", "csv") == 0
    assert capsys.readouterr().out.encode() == file(sweep, "results.csv")
    assert command(sweep, "--format", "parquet", "--out", str(tmp_path / "r.parquet")) == 0
    assert len(pd.read_parquet(tmp_path / "r.parquet")) == len(written.analysis.results)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "parquet"], "--out FILE"),
        (["--format", "csv", "--open"], "--open"),
        (["--format", "csv", "--baseline", "nobody"], "'nobody'"),
        (["--format", "csv", "--out", "/nowhere/at/all.csv"], "--out /nowhere/at/all.csv"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(
    sweep: Sweep, arguments: list[str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        command(sweep, *arguments)


def test_the_command_makes_and_opens_the_page(
    sweep: Sweep,
    written: WrittenReport,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: seen.append(address))
    monkeypatch.setattr("sweeps.report.write.figures", lambda *_: iter(()))  # they take seconds
    out = tmp_path / "page.html"
    assert command(sweep, "--open", "--out", str(out), "--baseline", "bo4sc") == 0
    printed = capsys.readouterr().out
    assert "On blobs-1.7, standard" in printed
    assert f"report    {out}" in printed
    assert seen == [out.as_uri()]
    assert "baseline bo4sc" in out.read_text()
