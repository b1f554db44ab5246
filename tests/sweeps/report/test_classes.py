"""Each class's reliability, and what is said where top-label ECE is blind."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import metrics
from calibration.evaluation import LabelledLogits, evaluate_calibrator
from calibration.metrics.class_view import (
    LEAST_EXPECTED,
    MOST_BINS,
    class_bins,
    class_view,
)
from calibration.metrics.predictions import Predictions
from sweeps.report.blindness import blind_sentences
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
    view = class_view(Predictions.of(rows, labels), 15)
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
    assert class_view(Predictions.of(rows.amax(-1), labels == 0), 15) is None


@pytest.mark.parametrize("classes", [2, 3])
def test_an_evaluation_leaves_the_view_of_its_classes(classes: int) -> None:
    rows, labels = drawn(classes)
    part = LabelledLogits(rows.log(), labels)
    stored, top_label = (
        evaluate_calibrator(name, part, part).rows for name in ("identity", "isotonic_top_label")
    )
    assert stored is not None
    assert top_label is not None
    assert top_label.class_view is None
    found, direct = stored.class_view, class_view(Predictions.of(rows, labels), 15)
    assert found is not None
    assert direct is not None
    for one, other in zip(found.summaries, direct.summaries, strict=True):
        assert one == pytest.approx(other)
    assert list(found.drawn) == list(direct.drawn)
    for number, bins in direct.drawn.items():
        for mine, theirs in zip(found.drawn[number], bins, strict=True):
            assert mine == pytest.approx(theirs)


def test_of_many_classes_the_rarest_are_drawn_and_more_are_listed() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2000, 60, generator=generator).double().softmax(-1)
    labels = (torch.rand(2000, generator=generator).square() * 59).long()  # none of the last class
    view = class_view(Predictions.of(rows, labels), 15)
    assert view is not None
    assert len(view.drawn) == 8
    assert len(view.summaries) == 50
    by_share = torch.bincount(labels, minlength=60)[:59].sort().values.tolist()
    assert [one.rows for one in view.summaries] == by_share[:50]
    room = PageBudget()
    html = class_reliability(room, {"a": view}, [f"k{n}" for n in range(60)], "a")
    assert len(room.charts) == 8
    assert "the probabilities of the 8 rarest classes, by a" in html
    assert "Not listed: 10" in html


def test_groups_widen_the_bands_of_classes() -> None:
    """Of every row four copies: a bin's share varies as that of a quarter of its rows."""
    rows, labels = drawn(2)
    probability, positive = (v.repeat_interleave(4, 0) for v in (rows[:, 1], labels == 1))
    groups = torch.arange(800).repeat_interleave(4)
    assert class_bins(probability, positive, groups).effect == pytest.approx(np.full(10, 4.0))
    assert (class_bins(probability, positive).effect == 1).all()


def test_the_section_names_classes_and_escapes_them() -> None:
    three, two = drawn(3), drawn(2)
    views = {name: class_view(Predictions.of(*three), 15) for name in ("plain", "best")}
    room = PageBudget()
    html = class_reliability(room, views, ("a", "<u>b</u>", "c"), "best")  # type: ignore[arg-type]
    assert "&lt;u&gt;b&lt;/u&gt;" in html
    assert "<u>" not in html
    assert any("probability of &lt;u&gt;b" in chart for chart in room.charts)
    assert len(room.charts) == 3  # every class, by the chosen row alone
    assert "The classes of best in numbers" in html
    views = {name: class_view(Predictions.of(*two), 15) for name in ("plain", "best")}
    room = PageBudget()
    html = class_reliability(room, views, ("ok", "fraud"), "best")  # type: ignore[arg-type]
    assert len(room.charts) == 2  # the rarer class, by every row
    assert "the probability of fraud" in html
    assert not class_reliability(room, {}, ("ok", "fraud"), "best")


def test_blindness_is_said_with_what_sees_instead() -> None:
    found = {"rare_class_ece": 0.0031, "auroc": 0.87, "brier_skill": 0.11, "base_rate": 0.014}
    said = blind_sentences([0.986, 0.014], ("ok", "fraud"), found, "focal")
    for part in (
        "Top-label ECE is blind here: ok has 98.6 % of the test rows",
        "an ECE of 0.014 without any skill",
        "Look at fraud (1.4 %) instead",
        "focal has rare-class ECE 0.003, AUROC 0.870, Brier skill 0.110 (base rate 0.014)",
    ):
        assert part in said
    assert blind_sentences([0.9, 0.1], ("ok", "fraud"), found, "focal") == ""
    overlooked = blind_sentences([0.5, 0.49, 0.01], ("a", "b", "c"), {}, "focal")
    assert overlooked == "Top-label ECE hardly sees c (1 %). Look at it separately."
