from __future__ import annotations

import pytest

from calibration import metrics


def test_panel_is_every_metric_on_its_own(draw) -> None:
    probabilities, labels = draw(700, 6)
    posterior = draw(700, 6, seed=1)[0]
    found = metrics.panel(probabilities, labels, bins=12, posterior=posterior)
    assert list(found) == [name for name in metrics.METRICS if name != "refinement"]
    for name, value in found.items():
        metric = metrics.METRICS[name]
        if name == "mce_count":
            expected = metrics.mce_with_count(probabilities, labels, bins=12).count
        elif name == "accuracy":
            expected = 1 - metrics.error(probabilities, labels)
        elif metric.needs == "posterior":
            expected = getattr(metrics, name)(probabilities, posterior)
        elif metric.binned:
            expected = getattr(metrics, name)(probabilities, labels, bins=12)
        else:
            expected = getattr(metrics, name)(probabilities, labels)
        assert value == expected.item(), name
        assert type(value) is float


def test_confidences_get_the_metrics_that_make_sense(draw) -> None:
    probabilities, labels = draw(700, 6)
    found = metrics.panel(probabilities.max(-1).values, probabilities.argmax(-1) == labels)
    lacking = {"nll", "brier", "classwise_ece", "classwise_ace", "true_ce", "posterior_gap"}
    lacking |= {"auroc", "average_precision", "brier_skill", "balanced_error"}
    lacking |= {"base_rate", "rare_class_ece", "rare_class_bias"}
    assert set(metrics.METRICS.names()) - set(found) == lacking


def test_named_metrics_only_in_their_order(draw) -> None:
    assert list(metrics.panel(*draw(), metrics=["ks", "ece"])) == ["ks", "ece"]


def test_unknown_and_impossible_names_are_refused(draw) -> None:
    probabilities, labels = draw()
    with pytest.raises(ValueError, match="metrics: unknown 'ecee'; known: ece, nll"):
        metrics.panel(probabilities, labels, metrics=["ecee"])
    with pytest.raises(ValueError, match="'nll' needs probabilities"):
        metrics.panel([0.5], [True], metrics=["nll"])
    with pytest.raises(ValueError, match="'true_ce' needs the true posterior"):
        metrics.panel(probabilities, labels, metrics=["true_ce"])
    with pytest.raises(ValueError, match=r"one set of predictions at a time.*\(1,\)"):
        metrics.panel(probabilities[None], labels[None])


def test_every_metric_is_described_in_one_line() -> None:
    for name, metric in metrics.METRICS.items():
        assert metric.description, name
        assert "\n" not in metric.description
        assert len(metric.description) < 70
