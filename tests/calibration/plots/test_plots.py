"""Figures: what they show is what the metrics say, on fixed scales, with nothing in the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import same_color
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray
from scipy import stats

from calibration import metrics, plots
from calibration.plots import style
from calibration.plots.bands import noise_band, wilson_interval

Pair = tuple[NDArray[np.float64], NDArray[np.bool_]]


def drawn(samples: int, *, gap: float = 0.0, classes: int = 5, seed: int = 0) -> Pair:
    """Confidences in [1/K, 1], right with probability confidence - gap."""
    generator = np.random.default_rng(seed)
    confidence = 1 / classes + (1 - 1 / classes) * generator.beta(4, 1.5, samples)
    return confidence, generator.random(samples) < np.clip(confidence - gap, 0, 1)


SITUATIONS: dict[str, Pair] = {
    "over-confident": drawn(1000, gap=0.15),
    "under-confident": drawn(1000, gap=-0.2),
    "calibrated": drawn(1000),
    "twelve samples": drawn(12, gap=0.1),
    "one sample": (np.array([0.73]), np.array([True])),
    "saturated": (np.ones(500), np.arange(500) % 10 > 0),
    "all wrong and sure of it": (np.ones(5), np.zeros(5, dtype=bool)),
    "never sure": (np.zeros(5), np.arange(5) % 2 > 0),
    "two classes": drawn(1000, gap=0.05, classes=2),
    "many samples": drawn(300_000, gap=0.02),
}


def bars(axes: Axes, label: str) -> BarContainer:
    (found,) = (c for c in axes.containers if c.get_label() == label)
    assert isinstance(found, BarContainer)
    return found


def texts(figure: Figure) -> list[str]:
    return [t.get_text() for t in figure.findobj(Text) if isinstance(t, Text) and t.get_text()]


def legend_labels(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def shown_texts(figure: Figure) -> list[Text]:
    """Every text that is drawn; ticks outside the limits keep labels that are not."""
    hidden: set[Text] = set()
    for axes in figure.axes:
        if not axes.get_visible():
            hidden.update(axes.findobj(Text))  # type: ignore[arg-type]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            visible = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
            kept = {axis.label, *(tick.label1 for tick in visible)}
            hidden.update(set(axis.findobj(Text)) - kept)  # type: ignore[arg-type]
    found = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [t for t in found if t.get_text() and t.get_visible() and t not in hidden]


def assert_tidy(figure: Figure) -> None:
    """No text is cut off by the figure's edge, none lies on another."""
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown_texts(figure)]
    assert len(boxes) > 5
    for text, box in boxes:
        assert box.x0 >= -1, f"{text!r} is cut off on the left"
        assert box.y0 >= -1, f"{text!r} is cut off below"
        assert box.x1 <= figure.bbox.x1 + 1, f"{text!r} is cut off on the right"
        assert box.y1 <= figure.bbox.y1 + 1, f"{text!r} is cut off above"
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        width = min(a.x1, b.x1) - max(a.x0, b.x0)
        height = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(width, height) < 1.5, f"{one!r} and {other!r} overlap"


# --- reliability diagrams ---------------------------------------------------------------------


@pytest.mark.parametrize("name", list(SITUATIONS))
@pytest.mark.parametrize("bins", [10, 15])
def test_reliability_diagram_draws_the_reliability_curve(name: str, bins: int) -> None:
    confidence, correct = SITUATIONS[name]
    figure = plots.reliability_diagram(confidence, correct, bins=bins, title=name)
    upper, lower = figure.axes
    curve = metrics.reliability_curve(confidence, correct, bins=bins)
    count, mean, accuracy = curve.count.numpy(), curve.confidence.numpy(), curve.accuracy.numpy()
    edges = curve.edges.numpy()
    full = count > 0
    centres = ((edges[1:] + edges[:-1]) / 2)[full]

    heights = bars(upper, "_bars")
    assert [bar.get_height() for bar in heights] == pytest.approx(accuracy[full])
    assert [bar.get_x() + bar.get_width() / 2 for bar in heights] == pytest.approx(centres)
    shares = bars(lower, "_shares")
    assert [bar.get_height() for bar in shares] == pytest.approx(count[full] / count.sum())

    for gap, low, high in zip(bars(upper, "_gaps"), accuracy[full], mean[full], strict=True):
        assert gap.get_y() == pytest.approx(min(low, high))
        assert gap.get_height() == pytest.approx(abs(high - low))
        if abs(high - low) > 1e-12:
            expected = style.OVER_CONFIDENT if high > low else style.UNDER_CONFIDENT
            assert same_color(gap.get_facecolor()[:3], expected)
    for axes in (upper, lower):
        assert axes.get_xlim() == (0, 1)
    assert upper.get_ylim() == (0, 1)
    assert lower.get_ylim()[0] == 0
    assert lower.get_ylim()[1] > (count[full] / count.sum()).max()


@pytest.mark.parametrize("name", list(SITUATIONS))
def test_reliability_diagram_says_what_decides(name: str) -> None:
    confidence, correct = SITUATIONS[name]
    figure = plots.reliability_diagram(confidence, correct, title=name)
    upper, lower = figure.axes
    error = float(metrics.ece(confidence, correct))
    floor = metrics.noise_floor(confidence, bins=15)
    assert upper.get_title("left") == f"ECE {error:.3f}, noise floor {floor.mean:.3f}"
    assert upper.get_title("right") == f"n = {len(confidence):,}, 15 bins"
    assert figure.get_suptitle() == name
    assert (upper.get_ylabel(), lower.get_xlabel()) == ("accuracy", "confidence")
    legend = lower.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        f"accuracy {correct.mean():.3f}",
        f"confidence {confidence.mean():.3f}",
    ]
    positions = sorted(float(np.asarray(line.get_xdata())[0]) for line in lower.get_lines())
    assert positions == pytest.approx(sorted([correct.mean(), confidence.mean()]))
    assert {"over-confident", "under-confident", "95 % interval", "95 % if calibrated"} < set(
        legend_labels(figure)
    )
    (diagonal,) = (line for line in upper.get_lines() if line.get_label() == "_diagonal")
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])


def test_counts_stand_over_their_bars() -> None:
    confidence = np.repeat([0.05, 0.55, 0.95], [3, 12_345, 7_654_321 // 100])
    figure = plots.reliability_diagram(confidence, np.ones(len(confidence)), bins=10)
    lower = figure.axes[1]
    shown = {t.get_text(): t.xy for t in lower.texts}
    assert set(shown) == {"3", "12k", "77k"}
    assert [xy[0] for xy in shown.values()] == pytest.approx([0.05, 0.55, 0.95])
    assert shown["12k"][1] == pytest.approx(12_345 / len(confidence))


def test_counts_are_left_out_where_they_would_collide() -> None:
    figure = plots.reliability_diagram(*SITUATIONS["calibrated"], bins=100)
    assert not figure.axes[1].texts
    assert_tidy(figure)


def test_intervals_and_noise_band_are_those_of_the_bins() -> None:
    confidence, correct = SITUATIONS["over-confident"]
    upper = plots.reliability_diagram(confidence, correct).axes[0]
    curve = metrics.reliability_curve(confidence, correct)
    full = (curve.count > 0).numpy()
    count, accuracy = curve.count.numpy()[full], curve.accuracy.numpy()[full]
    (lines,) = (
        c
        for c in upper.collections
        if isinstance(c, LineCollection) and c.get_label() == "_intervals"
    )
    for segment, n, share in zip(lines.get_segments(), count, accuracy, strict=True):
        test = stats.binomtest(round(share * n), round(n))
        expected = test.proportion_ci(0.95, method="wilson")
        assert segment[:, 1] == pytest.approx([expected.low, expected.high])
    low, high = noise_band(curve.confidence.numpy()[full], count)
    for bar, bottom, top in zip(bars(upper, "_band"), low, high, strict=True):
        assert (bar.get_y(), bar.get_y() + bar.get_height()) == pytest.approx((bottom, top))


def test_groups_widen_intervals_band_and_floor() -> None:
    """Of every point four copies: they tell as much as the points do once."""
    confidence, correct = (np.asarray(v)[:300] for v in SITUATIONS["calibrated"])
    groups = torch.arange(300).repeat_interleave(4)
    copies = np.repeat(confidence, 4), np.repeat(correct, 4)
    once, grouped, naive = (
        plots.reliability_diagram(confidence, correct),
        plots.reliability_diagram(*copies, groups=groups),
        plots.reliability_diagram(*copies),
    )

    def intervals(figure: Figure) -> NDArray[np.float64]:
        (lines,) = (c for c in figure.axes[0].collections if c.get_label() == "_intervals")
        return np.array([segment[:, 1] for segment in lines.get_segments()])  # type: ignore[attr-defined]

    assert intervals(grouped) == pytest.approx(intervals(once))
    assert np.diff(intervals(naive)).sum() < 0.7 * np.diff(intervals(once)).sum()
    floors = [float(f.axes[0].get_title("left").split()[-1]) for f in (once, grouped, naive)]
    assert floors[1] == pytest.approx(floors[0], rel=0.15)
    assert floors[2] < 0.7 * floors[0]
    level, rows, four = np.array([0.6]), np.array([400.0]), np.array([4.0])
    (low, high), (alone, _) = noise_band(level, rows, four), noise_band(level, rows)
    assert low == pytest.approx(0.6 - 2 * (0.6 - alone))
    assert high > low


def test_wilson_interval_at_the_ends() -> None:
    low, high = wilson_interval(np.array([0.0, 5.0]), np.array([5.0, 5.0]))
    assert low[0] == 0
    assert high[1] == 1
    assert high[0] == pytest.approx(1 - low[1])
    assert 0 < high[0] < 1


def test_noise_band_holds_nineteen_of_twenty_calibrated_draws() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.uniform(14 / 15, 1, 400)
    low, high = noise_band(confidence.mean(keepdims=True), np.array([400.0]))
    accuracies = (generator.random((4000, 400)) < confidence).mean(1)
    inside = np.mean((accuracies >= low) & (accuracies <= high))
    # Quantiles of a count are whole numbers, so the band holds a little more.
    assert 0.945 < inside < 0.985
    assert noise_band(np.array([1.0]), np.array([7.0])) == (1, 1)


def test_a_tensor_draws_like_an_array() -> None:
    confidence, correct = SITUATIONS["calibrated"]
    one = plots.reliability_diagram(confidence, correct)
    other = plots.reliability_diagram(torch.tensor(confidence), torch.tensor(correct))
    assert texts(one) == texts(other)


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 1.5], [True, False], "confidence.*1.5"),
        ([0.5, 0.7], [True], "shape"),
        ([[0.5, 0.7]], [[True, False]], r"shape \(N,\)"),
        ([0.5, float("nan")], [True, False], "NaN"),
        ([], [], "empty"),
    ],
)
def test_malformed_input_is_refused(confidence: Any, correct: Any, message: str) -> None:
    for draw in (plots.reliability_diagram, plots.confidence_histogram):
        with pytest.raises(ValueError, match=message):
            draw(np.asarray(confidence), np.asarray(correct))


def test_reliability_grid_has_one_scale_for_all() -> None:
    figure = plots.reliability_grid(SITUATIONS, title="all")
    visible = [axes for axes in figure.axes if axes.get_visible()]
    assert len(visible) == 2 * len(SITUATIONS)
    diagrams = [axes for axes in visible if axes.get_title("left")]
    histograms = [axes for axes in visible if not axes.get_title("left")]
    assert {axes.get_ylim() for axes in diagrams} == {(0, 1)}
    assert {axes.get_xlim() for axes in visible} == {(0, 1)}
    assert len({axes.get_ylim() for axes in histograms}) == 1
    assert max(tick for axes in histograms for tick in axes.get_yticks()) <= 1
    titles = [axes.get_title("left").splitlines() for axes in diagrams]
    assert sorted(title[0] for title in titles) == sorted(SITUATIONS)
    for name, verdict in titles:
        confidence, correct = SITUATIONS[name]
        assert verdict.startswith(f"ECE {float(metrics.ece(confidence, correct)):.3f}, ")
    for axes in diagrams:
        confidence, correct = SITUATIONS[axes.get_title("left").splitlines()[0]]
        accuracy = metrics.reliability_curve(confidence, correct).accuracy.numpy()
        heights = [bar.get_height() for bar in bars(axes, "_bars")]
        assert heights == pytest.approx(accuracy[~np.isnan(accuracy)])


def test_reliability_by_bins_has_a_row_for_each_name() -> None:
    named = {name: SITUATIONS[name] for name in ("calibrated", "over-confident")}
    figure = plots.reliability_by_bins(named, bins=(20, 100))
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (2, 2)
    pairs = [(name, bins) for name in named for bins in (20, 100)]
    for axes, (name, bins) in zip(figure.axes, pairs, strict=True):
        curve = metrics.reliability_curve(*named[name], bins=bins)
        heights = [bar.get_height() for bar in bars(axes, "_bars")]
        assert heights == pytest.approx(curve.accuracy[curve.count > 0].numpy())
        error = float(metrics.ece(*named[name], bins=bins))
        assert f"{bins} bins: ECE {error:.3f}, " in axes.get_title("left")


@pytest.mark.parametrize(
    ("methods", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (1, 4)), (5, (2, 3)), (6, (2, 3))]
)
def test_reliability_grid_fills_its_rows_evenly(methods: int, shape: tuple[int, int]) -> None:
    named = {f"method {i}": SITUATIONS["calibrated"] for i in range(methods)}
    figure = plots.reliability_grid(named)
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows // 2, grid.ncols) == shape


@pytest.mark.parametrize("methods", [1, 2, 4])
def test_counts_stay_inside_their_histogram(methods: int) -> None:
    pair = (np.r_[np.full(9_000, 0.99), np.full(900, 0.5)], np.ones(9_900))
    figure = plots.reliability_grid({f"method {i}": pair for i in range(methods)})
    figure.draw_without_rendering()
    counts = [(text, axes) for axes in figure.axes for text in axes.texts]
    assert len(counts) == 2 * methods
    for text, axes in counts:
        assert text.get_window_extent().y1 <= axes.bbox.y1
        assert text.get_window_extent().x1 <= axes.bbox.x1


def test_confidence_histogram_shows_shares_and_both_means() -> None:
    confidence, correct = SITUATIONS["over-confident"]
    (axes,) = plots.confidence_histogram(confidence, correct, bins=20).axes
    expected, _ = np.histogram(confidence, 20, (0, 1))
    heights = [bar.get_height() for bar in bars(axes, "_shares")]
    assert heights == pytest.approx(expected[expected > 0] / len(confidence))
    accuracy, mean = axes.get_lines()
    assert float(np.asarray(accuracy.get_xdata())[0]) == pytest.approx(correct.mean())
    assert float(np.asarray(mean.get_xdata())[0]) == pytest.approx(confidence.mean())
    assert accuracy.get_linestyle() == mean.get_linestyle() == "--"


# --- confidence regions -----------------------------------------------------------------------


def _points(classes: int = 3) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    generator = np.random.default_rng(1)
    labels = np.arange(90) % classes
    return generator.normal(size=(90, 2)) * (3, 1) + labels[:, None], labels


def _ramp(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rises with the first input only."""
    result: NDArray[np.float64] = 0.5 + 0.5 / (1 + np.exp(-points[:, 0]))
    return result


def test_background_is_the_confidence_where_it_stands() -> None:
    points, labels = _points()
    axes = plots.confidence_regions(_ramp, points, labels, resolution=40).axes[0]
    (image,) = axes.get_images()
    surface = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    assert surface.shape == (40, 40)
    assert image.origin == "lower"
    assert np.all(points > (left, bottom))
    assert np.all(points < (right, top))
    columns = left + (right - left) * (np.arange(40) + 0.5) / 40
    np.testing.assert_allclose(surface, np.tile(_ramp(np.c_[columns, columns]), (40, 1)))
    assert image.get_clim() == pytest.approx((1 / 3, 1))


def test_samples_lie_over_the_background_by_class() -> None:
    points, labels = _points()
    figure = plots.confidence_regions(_ramp, points, labels, title="ramp")
    axes = figure.axes[0]
    lines = axes.get_lines()
    assert len(lines) == 3
    for label, line in enumerate(lines):
        np.testing.assert_array_equal(line.get_xydata(), points[labels == label])
        assert line.get_zorder() > axes.get_images()[0].get_zorder()
    assert len({line.get_marker() for line in lines}) == 3
    assert legend_labels(figure) == ["class 0", "class 1", "class 2"]
    assert figure.get_suptitle() == "ramp"
    assert_tidy(figure)


def test_regions_of_several_methods_share_scale_and_colour_bar() -> None:
    points, labels = _points(2)
    named: dict[str, Callable[..., Any]] = {
        "standard": _ramp,
        "isotonic": lambda p: 0.1 + 0 * p[:, 0],
        "constant": lambda p: 1 + 0 * p[:, 0],
        "again": _ramp,
    }
    figure = plots.confidence_regions_grid(named, points, labels, resolution=20)
    shown = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title() for axes in shown] == list(named)
    assert {axes.get_images()[0].get_clim() for axes in shown} == {(0.5, 1)}
    bars_ = [axes for axes in figure.axes if axes.get_ylabel() == "confidence"]
    assert len(bars_) == 1
    labelled = [axes for axes in shown if axes.get_xlabel()]
    assert len(labelled) == 2
    assert_tidy(figure)


def test_regions_refuse_what_they_cannot_draw() -> None:
    points, labels = _points()
    with pytest.raises(ValueError, match=r"points.*\(90, 3\)"):
        plots.confidence_regions(_ramp, np.ones((90, 3)), labels)
    with pytest.raises(ValueError, match=r"labels.*\(90,\).*\(89,\)"):
        plots.confidence_regions(_ramp, points, labels[1:])
    with pytest.raises(ValueError, match=r"'rows'.*\(1600, 2\)"):
        plots.confidence_regions_grid({"rows": lambda p: p}, points, labels, resolution=40)


# --- comparisons ------------------------------------------------------------------------------

NAMED: dict[str, Pair] = {
    f"method {i} + temperature": drawn(400, gap=0.02 * i, seed=i) for i in range(10)
}


def test_bin_robustness_draws_both_errors_at_every_number_of_bins() -> None:
    figure = plots.bin_robustness(NAMED)
    left, right = figure.axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("ECE", "MCE")
    assert right.get_ylim() == (0, 1)
    assert left.get_ylim()[0] == 0
    assert legend_labels(figure) == list(NAMED)
    for index, pair in enumerate(NAMED.values()):
        for axes, metric in ((left, metrics.ece), (right, metrics.mce)):
            line = axes.get_lines()[index]
            bins = [int(number) for number in np.asarray(line.get_xdata())]
            assert bins == [10, 20, 50, 100, 200, 500, 1000]
            expected = [float(metric(*pair, bins=number)) for number in bins]
            assert np.asarray(line.get_ydata()) == pytest.approx(expected)
    assert [t.get_text() for t in left.get_xticklabels()] == [str(number) for number in bins]


def test_risk_coverage_ends_at_the_error_and_names_the_area() -> None:
    figure = plots.risk_coverage(NAMED)
    (axes,) = figure.axes
    assert axes.get_xlim() == (0, 1)
    assert axes.get_ylim()[0] == 0
    for line, (name, (confidence, correct)) in zip(axes.get_lines(), NAMED.items(), strict=True):
        x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        order = np.argsort(-confidence)
        wrong = np.cumsum(~correct[order]) / np.arange(1, 401)
        np.testing.assert_allclose(x, np.arange(1, 401) / 400)
        np.testing.assert_allclose(y, wrong)
        assert f"{name} (AURC {wrong.mean():.4f})" in legend_labels(figure)


def test_curves_draw_the_points_over_epochs() -> None:
    named = {"standard": [(1, 0.5), (2, 0.4), (5, 0.3)], "focal": [(1, 0.6)]}
    figure = plots.curves(named, "validation NLL", title="digits")
    (axes,) = figure.axes
    for line, points in zip(axes.get_lines(), named.values(), strict=True):
        np.testing.assert_allclose(line.get_xydata(), points)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "validation NLL")
    assert legend_labels(figure) == ["standard", "focal"]


def test_curves_refuse_a_name_without_points() -> None:
    with pytest.raises(ValueError, match="'focal'"):
        plots.curves({"standard": [(1, 0.5)], "focal": []}, "ECE")


@pytest.mark.parametrize(
    "draw",
    [
        plots.reliability_grid,
        plots.reliability_by_bins,
        plots.bin_robustness,
        plots.risk_coverage,
        lambda named: plots.curves(named, "ECE"),
        lambda named: plots.confidence_regions_grid(named, np.ones((3, 2)), np.arange(3)),
    ],
)
def test_nothing_to_draw_is_refused(draw: Callable[[dict[str, Any]], Figure]) -> None:
    with pytest.raises(ValueError, match="named is empty"):
        draw({})


# --- all figures ------------------------------------------------------------------------------


def test_lines_are_told_apart_without_colour() -> None:
    styles = style.line_styles(f"method {i}" for i in range(24))
    assert len({tuple(look.values()) for look in styles.values()}) == 24
    first_seven = list(styles.values())[:7]
    assert len({look["marker"] for look in first_seven}) == 7


FIGURES: dict[str, Callable[[], Figure]] = {
    **{
        name: lambda pair=pair, name=name: plots.reliability_diagram(*pair, title=name)
        for name, pair in SITUATIONS.items()
    },
    "grid of one": lambda: plots.reliability_grid({"standard": SITUATIONS["calibrated"]}),
    "grid of five": lambda: plots.reliability_grid(dict(list(SITUATIONS.items())[:5])),
    "long names": lambda: plots.reliability_grid(
        {
            f"package.module:MyOwnMethod{i} + structured_matrix": SITUATIONS["calibrated"]
            for i in range(4)
        },
        title="a dataset with a name",
    ),
    "histogram": lambda: plots.confidence_histogram(*SITUATIONS["saturated"], title="saturated"),
    "bins": lambda: plots.bin_robustness(NAMED, title="ten methods"),
    "risk": lambda: plots.risk_coverage(NAMED, title="ten methods"),
    "curves": lambda: plots.curves(
        {name: [(epoch, 1 / epoch) for epoch in range(1, 351)] for name in NAMED}, "ECE"
    ),
    "one point": lambda: plots.curves({"standard": [(1, 0.3)]}, "ECE"),
}


@pytest.mark.parametrize("name", list(FIGURES))
def test_nothing_overlaps_or_is_cut_off(name: str) -> None:
    assert_tidy(FIGURES[name]())


def test_drawing_leaves_no_global_state() -> None:
    settings = {"font.size": 23.0, "axes.grid": True, "figure.figsize": [1.0, 1.0]}
    with mpl.rc_context(settings):
        figure = plots.reliability_diagram(*SITUATIONS["calibrated"])
        assert {key: mpl.rcParams[key] for key in settings} == settings
    reference = plots.reliability_diagram(*SITUATIONS["calibrated"])
    assert figure.get_size_inches() == pytest.approx(reference.get_size_inches())
    sizes = [
        [t.get_fontsize() for t in f.findobj(Text) if isinstance(t, Text)]
        for f in (figure, reference)
    ]
    assert sizes[0] == sizes[1]
    assert pyplot.get_fignums() == []


def test_figures_are_about_six_hundred_pixels_wide_with_readable_type() -> None:
    figure = plots.reliability_diagram(*SITUATIONS["calibrated"])
    assert figure.get_figwidth() * figure.dpi == 600
    assert min(t.get_fontsize() for t in figure.findobj(Text) if isinstance(t, Text)) >= 7
