"""The page of stored predictions, and what pages are made of."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from selenium.webdriver.common.by import By

from calibration import calibrators, metrics
from calibration.metrics import bootstrap_intervals
from calibration.metrics.row_scores import row_scores
from sweeps.analysis.statistics import ranks
from sweeps.posthoc.page import posthoc_page
from sweeps.report.chart import embedded, looks
from sweeps.report.document import PAGE_LIMIT
from sweeps.report.leaderboard_table import Scale, bar, leaderboard_table, scale
from sweeps.report.line_charts import coverage_chart
from sweeps.report.reliability_charts import reliability_charts
from sweeps.report.sections.ranks import rank_diagram
from sweeps.report.templates import macro
from tests.browser import browser, console_errors, requests
from tests.sweeps.report.analyses import row

CALIBRATORS = ("temperature", "identity", "isotonic_top_label")


def stored(name: str = "<u>my</u>", note: str = "A <b>note</b>.") -> str:
    """A page of over-confident predictions of three classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (600,), generator=generator)
    logits = torch.randn(600, 3, generator=generator, dtype=torch.float64)
    logits = 3 * (logits + 1.5 * torch.nn.functional.one_hot(labels, 3))
    shown, lines = {}, []
    for chosen in CALIBRATORS:
        fitted = calibrators.fit(chosen, logits[:300], labels[:300])
        scores = row_scores(fitted(logits[300:]), labels[300:], logits[300:].argmax(-1))
        pair = scores.confidence.double(), scores.correct
        title = "predictions" if chosen == "identity" else f"predictions + {chosen}"
        shown[title] = pair
        low, high = bootstrap_intervals(*pair, metrics=["ece"])["ece"]
        line = {"dataset": name, "row": "predictions", "calibrator": chosen, "seed": 0}
        line |= {"ece": float(metrics.ece(*pair)), "error": float((~pair[1]).double().mean())}
        line |= {"ece_low": float(low), "ece_high": float(high)}
        lines.append(line | {"floor": float(metrics.noise_floor(pair[0]).mean)})
    tidy = pd.DataFrame(lines)
    table = tidy.drop(columns=["seed", "ece_low", "ece_high"])
    table = table.assign(seeds=1, winner=False, converged=1.0)
    table.loc[0, "winner"] = True
    verdicts = {"predictions + temperature": "better"}
    return posthoc_page(name, tidy, table, shown, verdicts, [note], 15)


@pytest.mark.slow
def test_stored_predictions_have_a_page_of_their_own(tmp_path: Path) -> None:
    text = stored()
    assert len(text.encode()) < PAGE_LIMIT
    (tmp_path / "page.html").write_text(text)
    with browser(360, 700) as driver:
        driver.get((tmp_path / "page.html").as_uri())
        driver.execute_script("document.querySelector('.panels .plot').scrollIntoView()")
        assert driver.find_element(By.TAG_NAME, "h1").text == "<u>my</u>"
        body = driver.find_element(By.TAG_NAME, "body").text
        assert "A <b>note</b>." in body
        assert "✓ better" in body
        assert len(driver.find_elements(By.CSS_SELECTOR, ".leaderboard tbody tr")) == len(
            CALIBRATORS
        )
        assert len(driver.find_elements(By.CSS_SELECTOR, ".leaderboard .bar .i")) == len(
            CALIBRATORS
        )
        assert driver.execute_script("return document.documentElement.scrollWidth") == 360
        assert console_errors(driver) == []
        assert requests(driver) == []


def test_a_chart_that_fails_is_named_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*given: Any) -> str:
        raise RuntimeError("it <b>broke</b>")

    monkeypatch.setattr("sweeps.posthoc.page.reliability_diagrams", fail)
    text = stored("\x1b[31m$x$", "of a file \udcff")
    assert "<h1>\\x1b[31m$x$</h1>" in text
    assert "<b>the reliability diagrams</b>: RuntimeError: it &lt;b&gt;broke&lt;/b&gt;" in text
    assert r"<p>of a file \udcff</p>" in text
    assert 'class="sortable leaderboard"' in text
    assert "Risk and coverage" in text
    (said,) = caplog.messages
    assert said.startswith("report: the reliability diagrams could not be made: RuntimeError")


def test_embedded_data_cannot_end_its_script() -> None:
    content = {"a": "</script><!--", "b": [0.1234567, float("nan"), 2.0], "c": "\u2028"}
    text = embedded(content)
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": "</script><!--", "b": [0.12346, None, 2], "c": r"\u2028"}


def test_names_are_no_markup_within_charts() -> None:
    pair = (torch.tensor([0.6, 0.9]), torch.tensor([True, False]))
    name = "<a href='x'>%{y}</a>"
    style = looks([(name, "identity")], [name])[name, "identity"]
    chart = coverage_chart({name: pair}, {name: style})
    assert chart.traces[0]["name"] == "&lt;a href='x'&gt;%{y}&lt;/a&gt;"
    assert not any("hovertemplate" in trace for trace in chart.traces)


def test_every_method_keeps_its_colour_and_every_map_its_dash() -> None:
    rows = [(m, p) for m in "abcdefghij" for p in ("identity", "temperature")]
    found = looks(rows, "abcdefghij")
    assert found["a", "identity"].colour == found["a", "temperature"].colour
    assert len({found[m, "identity"].colour for m in "abcdefg"}) == 7
    for part in ("dash", "symbol"):
        plain = {getattr(found[m, "identity"], part) for m in "abcdefghij"}
        mapped = {getattr(found[m, "temperature"], part) for m in "abcdefghij"}
        assert len(plain) == len(mapped) == 1
        assert plain != mapped


def test_histograms_share_one_scale() -> None:
    narrow = (torch.full((10,), 0.9), torch.ones(10, dtype=torch.bool))
    wide = (torch.linspace(0.05, 0.95, 10), torch.ones(10, dtype=torch.bool))
    charts = reliability_charts({"narrow": narrow, "wide": wide}, bins=10)
    ranges = [chart.layout["yaxis2"]["range"] for chart in charts.values()]
    assert ranges[0] == ranges[1] == [0, pytest.approx(1.05)]
    assert charts["narrow"].traces[0]["x"] == pytest.approx([0.85])  # (0.8, 0.9] is its bin
    for chart in charts.values():
        for axis in ("xaxis", "yaxis"):
            assert chart.layout[axis]["range"] == [0, 1]


def test_an_infinite_score_is_drawn_and_sorted_as_the_worst() -> None:
    rows = pd.DataFrame([row("a"), row("b", nll=math.inf), row("c", nll=0.4)])
    assert scale(rows, "nll") == Scale(0.335, 0.4)
    assert 'class="a"' in bar(rows.iloc[1], "nll", scale(rows, "nll"))
    table = macro("macros", "sortable")(leaderboard_table("x", rows, rows, {}, "a", 5))
    assert 'data-v="Infinity"><b>∞</b>' in table


def test_one_bad_row_does_not_squeeze_the_others() -> None:
    rows = pd.DataFrame([row(f"m{n}") for n in range(5)] + [row("bad", ece=0.9, ci=(0.8, 1.0))])
    found = scale(rows, "ece")
    assert found == Scale(0.0, pytest.approx(4 * 0.031))
    bad = bar(rows.iloc[5], "ece", found)
    assert 'class="a"' in bad  # an arrow: it lies beyond
    assert "<circle" not in bad
    good = bar(rows.iloc[0], "ece", found)
    (place,) = re.findall(r'<circle cx="([\d.]+)"', good)
    assert float(place) == pytest.approx(4 + 120 * 0.024 / found.high, abs=0.06)


def test_ranks_are_drawn_where_they_are() -> None:
    scores = pd.DataFrame({name: [float(n)] * 12 for n, name in enumerate(("a", "b<", "c"))})
    found = ranks(scores)
    assert found is not None
    drawn = rank_diagram("nll", found)
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', drawn)]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1]) == 105
    (length,) = re.findall(r'class="k" d="M[\d.]+ 19h([\d.]+)"', drawn)
    assert float(length) == pytest.approx(105 * found.critical_difference, abs=0.06)
    # Methods a rank apart are joined by a bracket if the critical difference is larger.
    assert len(re.findall(r'class="k" d="M\d+ \d+V', drawn)) == len(found.groups)
    assert "b&lt;</text>" in drawn
    assert "b&lt; †</text>" in rank_diagram("nll", found, {"b<"})
