"""Each class's reliability, and what is said where top-label ECE is blind."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import metrics
from calibration.metrics.row_scores import row_scores
from sweeps.report.blindness import blind_sentences
from sweeps.report.class_charts import LEAST_EXPECTED, MOST_BINS, class_bins
from sweeps.report.class_view import class_view, class_view_of_scores
from sweeps.report.document import PageBudget
from sweeps.report.sections.classes import class_reliability


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=200),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_bins_hold_every_row_once_and_ties_together(levels: list[int], seed: int) -> None:
    p = torch.tensor(levels, dtype=torch.float64) / 40
    positive = torch.from_numpy(np.random.default_rng(seed).random(len(levels))) < p
    bins = class_bins(p, positive)
    assert bins.rows.sum() == len(levels)
    assert (bins.rows * bins.mean).sum() == pytest.approx(p.sum().item(), abs=1e-9)
    assert (bins.rows * bins.share).sum() == pytest.approx(positive.sum().item(), abs=1e-9)
    assert len(bins.rows) <= max(1, min(MOST_BINS, p.sum().item() // LEAST_EXPECTED))
    assert (np.diff(bins.mean) > 0).all()
    # Labels decide nothing about the bins.
    assert class_bins(p, ~positive).rows.tolist() == bins.rows.tolist()


def test_a_rare_class_is_spread_over_bins_of_about_equal_expectation() -> None:
    z = torch.randn(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = (1.5 * z - 5).sigmoid()
    bins = class_bins(p, p > 0.1)
    assert len(bins.rows) == 10
    expected = bins.rows * bins.mean
    assert expected == pytest.approx(np.full(10, p.sum().item() / 10), rel=0.1)
    assert bins.rows[0] > 50 * bins.rows[-1]


def drawn(classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(classes)
    bias = torch.tensor([3.0, 0.0, 1.0])[:classes]
    rows = (torch.randn(800, classes, generator=generator).double() + bias).softmax(-1)
    return rows, torch.multinomial(rows, 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("classes", [2, 3])
def test_summaries_are_those_of_each_class_against_the_rest(classes: int) -> None:
    rows, labels = drawn(classes)
    view = class_view(rows, labels, 15)
    assert view is not None
    assert view.summaries[0].number == 1  # the rarest first
    assert list(view.drawn) == ([1] if classes == 2 else [1, 2, 0])
    for one in view.summaries:
        truth, p = (labels == one.number).numpy(), rows[:, one.number].numpy()
        assert one.rows == truth.sum()
        assert one.auroc == pytest.approx(sklearn.metrics.roc_auc_score(truth, p))
        expected = sklearn.metrics.average_precision_score(truth, p)
        assert one.average_precision == pytest.approx(expected)
        assert one.ece == metrics.ace(torch.from_numpy(p), torch.from_numpy(truth)).item()
        assert one.bias == pytest.approx(p.mean() - truth.mean())
    assert class_view(rows.amax(-1), labels, 15) is None


def test_two_classes_are_seen_again_in_the_stored_scores_of_rows() -> None:
    rows, labels = drawn(2)
    scores = row_scores(rows, labels, rows.argmax(-1))
    stored, direct = class_view_of_scores(scores, labels, 15), class_view(rows, labels, 15)
    assert stored is not None
    assert direct is not None
    for one, other in zip(stored.summaries, direct.summaries, strict=True):
        assert one == pytest.approx(other, abs=1e-5)  # scores are stored in float32
    assert class_view_of_scores(scores, labels.flip(0), 15) is None
    assert class_view_of_scores(scores, None, 15) is None


def test_the_section_names_classes_and_escapes_them() -> None:
    three, two = drawn(3), drawn(2)
    views = {name: class_view(*three, 15) for name in ("plain", "best")}
    room = PageBudget()
    html = class_reliability(room, views, ("a", "<u>b</u>", "c"), "best")  # type: ignore[arg-type]
    assert "&lt;u&gt;b&lt;/u&gt;" in html
    assert "<u>" not in html
    assert any("probability of &lt;u&gt;b" in chart for chart in room.charts)
    assert len(room.charts) == 3  # every class, by the chosen row alone
    assert "The classes of best in numbers" in html
    views = {name: class_view(*two, 15) for name in ("plain", "best")}
    room = PageBudget()
    html = class_reliability(room, views, ("ok", "fraud"), "best")  # type: ignore[arg-type]
    assert len(room.charts) == 2  # the rarer class, by every row
    assert "the probability of fraud" in html
    assert not class_reliability(room, {}, ("ok", "fraud"), "best")


def test_blindness_is_said_with_what_sees_instead() -> None:
    found = {"rare_class_ece": 0.0031, "auroc": 0.87, "brier_skill": 0.11, "base_rate": 0.014}
    said = blind_sentences([0.986, 0.014], ("ok", "fraud"), found, "focal")
    assert said == (
        "Top-label ECE is blind here: ok has 98.6 % of the test rows, and always predicting it "
        "with confidence 1 gives an ECE of 0.014 without any skill. Look at fraud (1.4 %) instead: "
        "focal has rare-class ECE 0.003, AUROC 0.870, Brier skill 0.110 (base rate 0.014)."
    )
    assert blind_sentences([0.9, 0.1], ("ok", "fraud"), found, "focal") == ""
    overlooked = blind_sentences([0.5, 0.49, 0.01], ("a", "b", "c"), {}, "focal")
    assert overlooked == "Top-label ECE hardly sees c (1 %). Look at it separately."
