"""A night's page and its Markdown, of made-up nights with names that do their worst."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.common.by import By

from sweeps.nightly.archive import history as past
from sweeps.nightly.archive.baseline import FIRST, make_baseline, read_baseline
from sweeps.nightly.archive.nights import Nights, NightState
from sweeps.nightly.archive.results import digest
from sweeps.nightly.judge.assessment import assess
from sweeps.nightly.judge.rules import Judge
from sweeps.nightly.judge.verdict import SweepCount, Verdict
from sweeps.nightly.report.charts import ChartData
from sweeps.nightly.report.markdown import night_markdown
from sweeps.nightly.report.page import night_page
from tests.browser import browser, console_errors, requests, resize

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"> | a"
NIGHTS = [f"2026-01-{day:02d}" for day in (1, 2, 4, 5)]


def results(ece: float) -> pd.DataFrame:
    """Two methods on a dataset, with and without a calibrator; seeds differ, nights by ``ece``."""
    rows = []
    for method in ("standard", HOSTILE):
        for calibrator in ("identity", "temperature"):
            for seed in range(1, 9):
                moved = ece if (method, calibrator) == (HOSTILE, "temperature") else 0.0
                numbers = {"ece": 0.05 + 0.002 * seed + moved * (1 + 0.02 * seed), "nll": 0.4}
                cell = {"sweep": "paper", "dataset": "blobs", "row": method}
                numbers |= {"brier": 0.2, "error": 0.1, "key": "0"}
                times = {"work_seconds": 1 + 0.1 * seed, "reference": 0.01}
                numbers["converged"] = not moved or seed > 1
                rows.append(cell | {"calibrator": calibrator, "seed": seed} | numbers | times)
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Verdict, ChartData]:
    """Four nights, the last of which is worse in one cell, and what its page is drawn from."""
    nights = Nights(tmp_path_factory.mktemp("made-up"), "small")
    for night in NIGHTS:
        frame = results(0.1 if night == NIGHTS[-1] else 0.0)
        state = NightState(
            suite="small",
            night=night,
            status="complete",
            identity={"torch": "2" if night == NIGHTS[-1] else "1"},
            digest=digest(frame),
        )
        history = past.keep(nights, state, frame)
        if night == NIGHTS[0]:
            make_baseline(nights, state, frame, FIRST)
        baseline = read_baseline(nights)
        assert baseline is not None
        counts = [SweepCount("paper", f"paper-{night}", 32, 32, 0, 40.0)]
        first = night == NIGHTS[0]
        verdict = assess(
            state, frame, counts, [], baseline, history, Judge(), nights=nights, first=first
        )
        nights.write(night, "verdict.json", verdict.json())
    worse = ("paper", "blobs", HOSTILE, "temperature", "ece", NIGHTS[-1])
    return verdict, ChartData(history, baseline.results, NIGHTS[0], {worse: "worse"})


@pytest.mark.slow
def test_the_page_says_what_is_worse_and_draws_it(
    told: tuple[Verdict, ChartData], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    page.write_text(night_page(*told))
    assert page.stat().st_size < 6_000_000
    with browser() as driver:
        driver.get(page.as_uri())
        assert driver.title == "small 2026-01-05 · calsweep"
        header = driver.find_element(By.ID, "summary").text
        assert "small: regression" in header
        assert f"paper · blobs · {HOSTILE} + temperature: ECE" in header
        assert "Not run: 2026-01-03." in header
        assert [d.text for d in driver.find_elements(By.CSS_SELECTOR, ".days li")] == [
            *("01", "02", "03", "04", "05")
        ]
        first = driver.find_element(By.CSS_SELECTOR, "#cells tbody tr")
        assert first.text.startswith(f"paper · blobs · {HOSTILE} + temperature")
        assert "✗ worse" in first.text
        assert "temperature †" in first.text
        assert "did not converge" in driver.find_element(By.CSS_SELECTOR, "#cells .note").text
        hidden = driver.find_elements(By.CSS_SELECTOR, "#cells tr.minor")
        assert len(hidden) == 13, "what has not moved waits for a click"
        assert not hidden[0].is_displayed()
        driver.find_element(By.XPATH, "//button[text()='all 14']").click()
        assert hidden[0].is_displayed()
        plots = driver.find_elements(By.CSS_SELECTOR, "#moved .plot svg .scatterlayer .point")
        assert len(plots) >= len(NIGHTS)
        link = driver.find_element(By.LINK_TEXT, "paper").get_attribute("href")
        assert link == f"{tmp_path.as_uri()}/runs/paper-2026-01-05/report.html"
        resize(driver, 390, 800)
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 390, "a phone scrolls one way"
        assert console_errors(driver) == []
        assert requests(driver) == []


@pytest.mark.parametrize(("kind", "word"), [("steps", "worse"), ("trends", "drifting")])
def test_what_only_many_nights_show_is_drawn_too(
    told: tuple[Verdict, ChartData], kind: str, word: str
) -> None:
    verdict, shown = told
    frame = getattr(verdict, kind)
    here = (frame["row"] == "standard") & (frame["calibrator"] == "identity")
    here &= frame["metric"] == "ece"
    assert here.sum() == 1
    found = frame.assign(verdict=frame["verdict"].mask(here, word))

    def drawn(verdict: Verdict) -> int:
        return night_page(verdict, shown).split('<section id="cells">')[0].count('class="plot')

    assert drawn(replace(verdict, **{kind: found})) == drawn(verdict) + 1


def test_markdown_has_the_table_the_changes_and_the_days(told: tuple[Verdict, ChartData]) -> None:
    text = night_markdown(told[0])
    lines = text.splitlines()
    assert lines[0] == "# small 2026-01-05: regression"
    rows = [line for line in lines if line.startswith("| paper · blobs")]
    (row,) = rows
    assert r"\</script\>" in row, "no tag of a user's in somebody's browser"
    assert row.replace("\\|", "").count("|") == 7
    assert "worse (p < 0.001)" in row
    assert r"temperature †" in row, "on one seed its fit did not converge"
    assert "† a fit of the calibrator did not converge" in text
    assert "- torch: 1 → 2" in lines
    assert "[paper](runs/paper-2026-01-05/report.html)" in text
    assert "1 night not run: 2026-01-03." in text


def test_a_chart_that_fails_costs_its_section(
    told: tuple[Verdict, ChartData], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> str:
        raise RuntimeError("a chart broke")

    monkeypatch.setattr("sweeps.nightly.report.page.cells_of", fail)
    page = night_page(*told)
    said = page[page.index('<section id="missing">') :].split("</section>")[0]
    assert "&#39;History&#39; of the night&#39;s page</b>: RuntimeError: a chart broke" in said
    for anchor in ("moved", "cells", "changed", "sweeps"):
        assert f'<section id="{anchor}">' in page
    assert '<section id="history">' not in page


def test_a_night_without_results_has_a_page_too() -> None:
    state = NightState(suite="small", night="2026-01-05", status="unfinished", digest="0")
    empty = pd.DataFrame(columns=["sweep", "dataset", "row", "calibrator", "seed"])
    history = pd.DataFrame(columns=["night", *empty.columns, "ece", "nll"])
    reasons = ["the time limit of 1 min was reached", "paper was not started"]
    counts = [SweepCount("paper", "paper-2026-01-05", 0, 0, 0, 0.0)]
    nights = Nights(Path("my nights"), "small", "suites/small.yaml")
    verdict = assess(state, empty, counts, reasons, None, history, Judge(), nights=nights)
    assert (verdict.overall, verdict.exit_code) == ("incomplete", 1)
    assert "no baseline yet" in " ".join(verdict.sentences)
    page = night_page(verdict, ChartData(history, history, "", {}))
    assert "paper was not started" in page
    finish = "calsweep nightly suites/small.yaml --night 2026-01-05 --nights 'my nights'"
    assert f"To finish it: {finish}\n" in night_markdown(verdict)


def test_days_are_all_days() -> None:
    """Over the end of a month and of a year."""
    nights = Nights(Path("nowhere"), "small")
    days = [day.night for day in nights.days("2026-03-01", ["2025-12-30"])]
    first = datetime.date(2025, 12, 30)
    assert days == [(first + datetime.timedelta(n)).isoformat() for n in range(62)]
    assert np.all([len(day) == 10 for day in days])
