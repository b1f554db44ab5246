"""What every registered objective must do, whatever its formula."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from calibration import objectives
from calibration.objectives import OBJECTIVES

Draw = Callable[..., tuple[Tensor, Tensor]]

NAMES = list(OBJECTIVES)


def real_hyperparameters(name: str) -> dict[str, float]:
    parameters = inspect.signature(OBJECTIVES[name]).parameters.values()
    return {p.name: p.default for p in parameters if isinstance(p.default, float)}


WITH_HYPERPARAMETERS = [name for name in NAMES if real_hyperparameters(name)]


def test_the_objectives_of_the_literature_are_there() -> None:
    assert NAMES == [
        "avuc",
        "brier_reliability",
        "confidence_bce",
        "confidence_penalty",
        "dca",
        "dece",
        "histogram_ece",
        "mdca",
        "mmce",
        "mmce_weighted",
        "sb_ece",
        "sece",
        "soft_ks",
        "spline_ks",
    ]
    assert all(getattr(objectives, name) is OBJECTIVES[name] for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [2, 5])
def test_derivatives_of_first_and_second_order(name: str, classes: int, draw: Draw) -> None:
    logits, labels = draw(9, classes, seed=3)
    logits.requires_grad_()

    def value(z: Tensor) -> Tensor:
        return OBJECTIVES[name](z, labels)

    assert torch.autograd.gradcheck(value, logits, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(value, logits)


@pytest.mark.parametrize("name", WITH_HYPERPARAMETERS)
def test_derivatives_in_the_hyperparameters(name: str, draw: Draw) -> None:
    logits, labels = draw(7, 3, seed=4)
    defaults = real_hyperparameters(name)
    # The logarithm of each hyperparameter, so that a step of 1e-6 suits 0.01 as well as 100.
    start = torch.zeros(len(defaults), dtype=torch.float64, requires_grad=True)

    def value(z: Tensor, logs: Tensor) -> Tensor:
        pairs = zip(defaults.items(), logs.exp(), strict=True)
        return OBJECTIVES[name](
            z, labels, **{hyperparameter: 0.9 * at * by for (hyperparameter, at), by in pairs}
        )

    inputs = (logits.requires_grad_(), start)
    assert torch.autograd.gradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(value, inputs)
    (slope,) = torch.autograd.grad(value(*inputs), start)
    assert (slope != 0).all()


@pytest.mark.parametrize("name", WITH_HYPERPARAMETERS)
def test_a_hyperparameter_may_be_a_tensor_and_batched_over(name: str, draw: Draw) -> None:
    logits, labels = draw()
    factors = torch.tensor([0.5, 0.9, 1.3], dtype=torch.float64)
    stacked = {
        hyperparameter: default * factors
        for hyperparameter, default in real_hyperparameters(name).items()
    }
    batched = torch.vmap(
        lambda hyperparameters: OBJECTIVES[name](logits, labels, **hyperparameters)
    )(stacked)
    single = [
        OBJECTIVES[name](
            logits, labels, **{hyperparameter: float(v[i]) for hyperparameter, v in stacked.items()}
        )
        for i in range(len(factors))
    ]
    torch.testing.assert_close(batched, torch.stack(single))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_many_batches_at_once(name: str, draw: Draw) -> None:
    pairs = [draw(seed=seed) for seed in range(3)]
    logits, labels = (torch.stack(part) for part in zip(*pairs, strict=True))
    slope = torch.func.grad(OBJECTIVES[name])
    expected = torch.stack([slope(*pair) for pair in pairs])
    torch.testing.assert_close(torch.vmap(slope)(logits, labels), expected)


@pytest.mark.parametrize("name", NAMES)
def test_symmetries(name: str, draw: Draw) -> None:
    logits, labels = draw(50, 4)
    objective = OBJECTIVES[name]
    value = objective(logits, labels)
    rows = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    columns = torch.tensor([2, 0, 3, 1])
    for same in (
        objective(logits[rows], labels[rows]),
        objective(logits[:, columns], columns.argsort()[labels]),
        objective(logits + 5 * torch.ones(50, 1, dtype=torch.float64), labels),
        # The scale of a mean: the same samples twice are no worse than once.
        objective(logits.repeat(2, 1), labels.repeat(2)),
    ):
        torch.testing.assert_close(same, value)


def extreme_batches(classes: int, samples: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (samples,), generator=generator)
    noise = torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    right = one_hot(labels, classes).double()
    wrong = one_hot((labels + 1) % classes, classes).double()
    mixed = torch.where((torch.arange(samples) % 2 == 0)[:, None], right, wrong)
    yield "all right", 0.1 * noise + right, labels
    yield "all wrong", 0.1 * noise + wrong, labels
    yield "constant", torch.full((samples, classes), 7.3, dtype=torch.float64), labels
    yield "several at the top", 1e4 * noise.sign(), labels
    for target, case in ((right, "right"), (wrong, "wrong"), (mixed, "right and wrong")):
        yield f"saturated, {case}", 1e4 * (2 * target - 1), labels
    # Between a soft row and one whose smaller probabilities underflow.
    for gap in (10, 17, 25, 40, 80, 100):
        yield f"gap {gap}", gap * mixed, labels


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_at_the_extremes(name: str, dtype: torch.dtype) -> None:
    for classes in (2, 10):
        for samples in (1, 2, 32):
            for case, extreme, labels in extreme_batches(classes, samples):
                logits = extreme.to(dtype).requires_grad_()
                value = OBJECTIVES[name](logits, labels)
                (slope,) = torch.autograd.grad(value, logits, create_graph=True)
                (bend,) = torch.autograd.grad(slope.cos().sum(), logits)
                where = f"{case}, {samples} samples of {classes} classes"
                assert value.shape == (), where
                assert value.dtype == slope.dtype == dtype, where
                assert value.isfinite(), where
                assert slope.isfinite().all(), where
                assert bend.isfinite().all(), where
                # No clamp or kink may turn a batch's mean into an exploding step.
                assert slope.abs().max() < 15, where


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_suffices(name: str, draw: Draw) -> None:
    logits, labels = draw(64, 10)
    objective = torch.func.grad_and_value(OBJECTIVES[name])
    slope, value = objective(logits.float(), labels)
    exact_slope, exact = objective(logits.float().double(), labels)
    torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(slope.double(), exact_slope, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_shapes_are_refused(name: str, draw: Draw) -> None:
    logits, labels = draw(6, 3)
    objective = OBJECTIVES[name]
    with pytest.raises(ValueError, match=r"labels must have shape \(6,\).*found \(6, 1\)"):
        objective(logits, labels[:, None])
    with pytest.raises(ValueError, match=r"logits must have shape \(N, K\).*found \(6,\)"):
        objective(logits[:, 0], labels)
    with pytest.raises(ValueError, match="N ≥ 1 samples"):
        objective(logits[:0], labels[:0])


@pytest.mark.parametrize("name", ["brier_reliability", "dece", "histogram_ece", "sb_ece"])
def test_no_bins_are_refused(name: str, draw: Draw) -> None:
    with pytest.raises(ValueError, match="bins must be a whole number of at least 1, found 0"):
        OBJECTIVES[name](*draw(), bins=0)
