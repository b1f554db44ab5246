from __future__ import annotations

import math

import pytest
import torch
from scipy.optimize import minimize_scalar

from calibration import metrics


def test_nll_from_logits_keeps_precision_at_extreme_logits() -> None:
    logits = torch.tensor([[1e4, 0.0, -1e4], [-1e4, 1e4, 0.0], [1e4, 1e4, -1e4]])
    assert metrics.nll_from_logits(logits, [0, 1, 0]).item() == pytest.approx(math.log(2) / 3)
    assert metrics.nll_from_logits(logits, [2, 0, 2]).item() == pytest.approx(
        (2e4 + 2e4 + 2e4 + math.log(2)) / 3, rel=1e-15
    )
    # A softmax in float32 has lost all of it.
    assert metrics.nll(logits.softmax(-1), [2, 0, 2]).item() == math.inf


def test_nll_from_logits_is_nll_of_the_softmax() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 100, 6, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(6, (4, 100), generator=generator)
    expected = metrics.nll(logits.softmax(-1), labels)
    assert torch.allclose(metrics.nll_from_logits(logits, labels), expected, rtol=1e-13)


def test_panel_of_extreme_logits_is_finite_where_it_can_be() -> None:
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4], [1e4, -1e4], [0.0, 0.0]])
    found = metrics.panel(logits.softmax(-1), torch.tensor([0, 1, 1, 0]))
    assert found["error"] == 0.25
    assert found["ece"] == pytest.approx((0.5 + 1.0) / 4)
    assert found["brier"] == pytest.approx((2 + 0.5) / 4)
    assert found["nll"] == math.inf
    assert all(math.isfinite(value) for name, value in found.items() if name != "nll")


def test_perfect_and_worst_predictions() -> None:
    rows = torch.eye(3).repeat(10, 1)
    right = torch.arange(3).repeat(10)
    best, worst = metrics.panel(rows, right), metrics.panel(rows, (right + 1) % 3)
    for name in ("error", "nll", "brier", "ece", "mce", "ace", "classwise_ece", "ks", "kuiper",
                 "mmce", "l2_debiased", "aurc"):  # fmt: skip
        assert best[name] == 0, name
    assert worst["brier"] == 2
    assert worst["nll"] == math.inf
    for name in ("error", "ece", "mce", "ace", "ks", "kuiper", "mmce", "aurc"):
        assert worst[name] == pytest.approx(1, abs=1e-12), name


def test_only_one_class_present(draw) -> None:
    """The number of classes comes from the rows, never from the labels."""
    probabilities, _ = draw(200, 4)
    labels = torch.zeros(200, dtype=torch.long)
    found = metrics.panel(probabilities, labels)
    residual = probabilities.clone()
    residual[:, 0] -= 1
    assert found["brier"] == pytest.approx(residual.square().sum(1).mean().item(), rel=1e-12)
    for k in range(1, 4):  # an absent class contributes its mean probability
        assert probabilities[:, k].mean() > 0
    absent = probabilities[:, 1:].mean(0).sum().item()
    assert found["classwise_ece"] >= absent / 4


def test_refinement_is_the_nll_at_the_best_temperature(draw) -> None:
    probabilities, labels = draw(1500, 5, sharpness=3.0)
    logits = probabilities.log()
    best = minimize_scalar(
        lambda t: metrics.nll_from_logits(logits / t, labels).item(), bounds=(0.1, 20)
    )
    parts = metrics.nll_decomposition(probabilities, labels)
    assert parts.refinement.item() == pytest.approx(best.fun, rel=1e-9)
    assert parts.nll.item() == pytest.approx(metrics.nll(probabilities, labels).item(), rel=1e-12)
    assert (parts.refinement + parts.calibration).item() == pytest.approx(parts.nll.item())
    assert parts.calibration > 0.05


def test_refinement_does_not_depend_on_temperature(draw) -> None:
    probabilities, labels = draw(1000, 3)
    logits = probabilities.log()
    found = [
        metrics.nll_decomposition_from_logits(logits * scale, labels).refinement.item()
        for scale in (1e-3, 1.0, 1e3)
    ]
    assert found == pytest.approx([found[0]] * 3, rel=1e-8)


def test_refinement_of_worse_than_chance_is_the_uniform_nll(draw) -> None:
    probabilities, labels = draw(1000, 3)
    logits = -probabilities.log()
    parts = metrics.nll_decomposition_from_logits(logits, labels)
    assert parts.refinement.item() == pytest.approx(math.log(3))


def test_refinement_of_error_free_predictions_is_zero() -> None:
    logits = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    parts = metrics.nll_decomposition_from_logits(logits, logits.argmax(-1))
    assert parts.refinement.item() == pytest.approx(0, abs=1e-3)
    assert parts.nll > 0.1


def test_cross_fitting_a_small_set_is_never_optimistic_nor_unbounded(draw) -> None:
    probabilities, labels = draw(60, 3, sharpness=3.0)
    same = metrics.nll_decomposition(probabilities, labels, folds=1)
    crossed = metrics.nll_decomposition(probabilities, labels)
    assert same.refinement < crossed.refinement < same.refinement + 0.2
    assert crossed == metrics.nll_decomposition(probabilities, labels, folds=5)
    # A single error: the other folds are error-free and would sharpen without end.
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * 3
    truth = logits.argmax(-1)
    truth[0] = logits[0].argmin()
    assert metrics.nll_decomposition_from_logits(logits, truth).refinement < 1


def test_decomposition_of_underflowed_probabilities_blames_calibration() -> None:
    logits = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)) * 500
    labels = torch.randint(3, (1000,), generator=torch.Generator().manual_seed(1))
    parts = metrics.nll_decomposition(logits.softmax(-1), labels)
    assert parts.nll.item() == parts.calibration.item() == math.inf
    assert parts.refinement.item() == pytest.approx(math.log(3), abs=0.01)


def test_decomposition_of_batches_and_bad_folds(draw) -> None:
    sets = [draw(80, 3, seed=seed) for seed in range(2)]
    rows, labels = (torch.stack(x) for x in zip(*sets, strict=True))
    whole = metrics.nll_decomposition(rows, labels)
    for number, (p, y) in enumerate(sets):
        single = metrics.nll_decomposition(p, y)
        assert whole.refinement[number].item() == pytest.approx(single.refinement.item(), rel=1e-12)
    with pytest.raises(ValueError, match="folds must not exceed the 80 samples, found 81"):
        metrics.nll_decomposition(rows, labels, folds=81)
    with pytest.raises(ValueError, match="folds must be at least 1"):
        metrics.nll_decomposition(rows, labels, folds=0)
