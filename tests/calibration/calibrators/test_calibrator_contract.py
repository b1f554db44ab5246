from __future__ import annotations

import importlib
import pickle
import pkgutil

import pytest
import torch
from torch import Tensor

from calibration import calibrators
from calibration.calibrators import CALIBRATORS, Calibrator
from calibration.calibrators.softmax_regression import AffineScaling
from calibration.registry import UnknownNameError
from calibration.testing import ContractError, check_calibrator

ALL = calibrators.names("all")
# Exceptions are named here, so that a new calibrator cannot promise less by accident.
NOT_SCALING = {  # NLL on the fitting data may rise
    "bbq",
    "cdf_spline",
    "centred_isotonic",
    "histogram_mass",
    "histogram_width",
    "isotonic",
    "isotonic_top_label",
    "kernel",
    "polynomial",
    "scaling_binning",
    "venn_abers",
}
SLOW = {"bbq", "dirichlet", "matrix", "polynomial", "spline", "structured_matrix", "venn_abers"}


def test_only_the_named_calibrators_promise_less() -> None:
    assert {name for name in ALL if not CALIBRATORS[name].scaling} == NOT_SCALING
    assert {name for name in ALL if CALIBRATORS[name].top_label} == {"isotonic_top_label"}
    assert set(ALL) - set(calibrators.names("fast")) == SLOW


def test_no_file_of_the_package_registers_what_the_package_does_not_import() -> None:
    for module in pkgutil.iter_modules(calibrators.__path__, "calibration.calibrators."):
        importlib.import_module(module.name)
    assert sorted(ALL) == ALL == calibrators.names("all")


@pytest.mark.parametrize("name", ALL)
def test_calibrator_keeps_the_contract(name: str) -> None:
    check_calibrator(CALIBRATORS[name])


def solved(name: str) -> float:
    """How far the probabilities of two fits to the same 150 samples may be apart.

    Both stop within g'H⁻¹g of the optimum, which moves no logit of a fitted sample by more
    than its root times √150, and no probability by more than a quarter of that. Newton's
    method stops at 1e-12; the affine maps at a gradient of 1e-6, and their softest curvature,
    Dirichlet's ridge, is 2e-3.
    """
    short = 1e-12 / 2e-3 if issubclass(CALIBRATORS[name], AffineScaling) else 1e-12
    return 2 * (150 * short) ** 0.5 / 4


@pytest.mark.parametrize("name", ALL)
def test_logits_and_log_probabilities_mean_the_same(name: str, gaussians) -> None:
    problem = gaussians(150, 4, factor=2.0)
    shifted = problem.logits.log_softmax(1) + torch.linspace(-9, 9, 150)[:, None]
    expected = calibrators.fit(name, problem.logits, problem.labels)(problem.logits)
    found = calibrators.fit(name, shifted, problem.labels)(shifted)
    torch.testing.assert_close(found, expected, rtol=0, atol=solved(name))


@pytest.mark.parametrize("name", ALL)
def test_order_of_the_fitting_data_does_not_matter(name: str, gaussians) -> None:
    problem = gaussians(150, 3, factor=2.0)
    # Rounded logits repeat: ties must not be broken by position.
    logits = problem.logits.round()
    order = torch.randperm(150, generator=torch.Generator().manual_seed(1))
    expected = calibrators.fit(name, logits, problem.labels)(logits)
    found = calibrators.fit(name, logits[order], problem.labels[order])(logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=solved(name))


@pytest.mark.parametrize("name", [name for name in ALL if CALIBRATORS[name].fast])
def test_fast_calibrators_manage_a_thousand_classes(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(120, 1000, generator=generator)
    labels = logits[:, :500].argmax(1)
    result = calibrators.fit(name, logits, labels)(logits[:7])
    if CALIBRATORS[name].top_label:
        assert result.shape == (7,)
    else:
        assert result.shape == (7, 1000)
        torch.testing.assert_close(result.sum(1), torch.ones(7).double(), rtol=0, atol=1e-9)


# Three forms too coarse for this problem, no map, and one that gives no rows.
NO_CURE = {
    *("platt_probabilities", "histogram_width", "polynomial"),
    *("identity", "isotonic_top_label"),
}


@pytest.mark.parametrize("name", sorted(set(ALL) - NO_CURE))
def test_threefold_over_confidence_is_mostly_corrected(name: str, gaussians) -> None:
    fitting, fresh = gaussians(4000, 3, factor=3.0), gaussians(4000, 3, factor=3.0, seed=1)
    corrected = calibrators.fit(name, fitting.logits, fitting.labels)(fresh.logits)
    before = (fresh.logits.softmax(1) - fresh.posterior).abs().mean()
    after = (corrected - fresh.posterior).abs().mean()
    assert after < 0.3 * before


def test_gradients_are_neither_needed_nor_kept(gaussians) -> None:
    problem = gaussians(50, 3)
    logits = problem.logits.clone().requires_grad_()
    assert not calibrators.fit("temperature", logits, problem.labels)(logits).requires_grad


def test_unknown_names_are_refused(gaussians) -> None:
    problem = gaussians(10, 3)
    with pytest.raises(UnknownNameError, match="did you mean 'temperature'"):
        calibrators.fit("temperatur", problem.logits, problem.labels)
    with pytest.raises(ValueError, match="which must be 'fast' or 'all', found 'slow'"):
        calibrators.names("slow")  # type: ignore[arg-type]


def test_infinite_log_probability_is_refused_with_a_remedy() -> None:
    logits = torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log()
    with pytest.raises(ValueError, match=r"-inf in row 1, class 1; clip probabilities"):
        calibrators.fit("temperature", logits, torch.tensor([0, 1]))


class Honest(Calibrator):
    """The least that keeps the contract; the classes below break one rule each."""

    description = "halves all logits"
    scaling = False
    keeps_argmax = True
    fast = True

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        self.factor = 0.5

    def _apply(self, logits: Tensor) -> Tensor:
        return (self.factor * logits).softmax(1)


class SinglePrecision(Honest):
    def _apply(self, logits: Tensor) -> Tensor:
        return super()._apply(logits).float()


class SumsWrong(Honest):
    def _apply(self, logits: Tensor) -> Tensor:
        return super()._apply(logits) * (1 - 1e-6)


class Negative(Honest):
    def _apply(self, logits: Tensor) -> Tensor:
        row = torch.tensor([-0.5, 1.5] + [0.0] * (logits.shape[1] - 2), dtype=torch.float64)
        return row.expand(len(logits), -1)


class TurnsAround(Honest):
    def _apply(self, logits: Tensor) -> Tensor:
        return super()._apply(-logits)


class Random(Honest):
    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        self.factor = float(torch.rand(())) + 0.1


class Remembers(Honest):
    def __init__(self) -> None:
        self.factor = 1.0

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        self.factor *= 0.5


class LooksAtTheBatch(Honest):
    def _apply(self, logits: Tensor) -> Tensor:
        return (logits / len(logits)).softmax(1)


class ForgetsWhenPickled(Honest):
    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "factor": 1.0}


class OneColumn(Honest):
    def _apply(self, logits: Tensor) -> Tensor:
        return super()._apply(logits)[:, 0]


class Undeclared(Honest):
    fast = None  # type: ignore[assignment]


class WorsensNLL(Honest):
    scaling = True

    def fit(self, logits: Tensor, labels: Tensor) -> WorsensNLL:
        super().fit(logits, labels)
        self._fell_back = False
        return self


class Unchecked(Honest):
    def fit(self, logits: Tensor, labels: Tensor) -> Unchecked:
        self.converged, self._classes, self.factor = True, logits.shape[-1], 0.5
        return self


def test_an_honest_calibrator_passes() -> None:
    check_calibrator(Honest)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (SinglePrecision, "must give float64, found torch.float32"),
        (SumsWrong, "rows must sum to 1, one is off by 1.0e-06"),
        (Negative, r"numbers in \[0, 1\]"),
        (TurnsAround, "predicted class is no longer the likeliest"),
        (Random, "a second fit"),
        (Remembers, "a second fit"),
        (LooksAtTheBatch, "other rows of the call"),
        (ForgetsWhenPickled, "pickling must change nothing"),
        (OneColumn, r"must give shape \(211, 2\), found \(211,\)"),
        (Undeclared, "fast must be declared"),
        (WorsensNLL, "NLL on the fitting data rose"),
        (Unchecked, "given one-dimensional logits, must raise ValueError"),
    ],
)
def test_a_broken_calibrator_is_caught(broken: type[Calibrator], complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_calibrator(broken)


def test_a_scaling_map_that_ends_worse_falls_back_to_softmax(gaussians) -> None:
    class Worse(Honest):
        scaling = True

    problem = gaussians(400, 3)
    fitted = Worse().fit(problem.logits, problem.labels)
    assert not fitted.converged
    assert torch.equal(fitted(problem.logits), problem.logits.softmax(1))
    # Fitted again to data that halving does help, it is used again.
    fitted.fit(2 * problem.logits, problem.labels)
    assert fitted.converged
    assert torch.equal(fitted(problem.logits), (problem.logits / 2).softmax(1))


def test_no_true_class_may_lose_its_last_chance() -> None:
    class Sharpens(Honest):
        scaling = True

        def _fit(self, logits: Tensor, labels: Tensor) -> None:
            self.factor = 1.2

    # 99 of 100 gain, but e^−700 · 1.2 underflows: NLL would be infinite.
    logits = torch.tensor([[0.0, 60.0]] * 99 + [[0.0, 700.0]]).double()
    labels = torch.tensor([1] * 99 + [0])
    fitted = Sharpens().fit(logits, labels)
    assert float(fitted(logits)[-1, 0]) > 0
    # Where softmax itself has underflowed, what is left to compare decides.
    logits[-1, 1], logits[:99, 1] = 800.0, 1.0
    assert Sharpens().fit(logits, labels).converged


def test_a_pickled_map_can_be_fitted_again(gaussians) -> None:
    first, second = gaussians(80, 3, factor=2.0), gaussians(80, 5, factor=3.0, seed=1)
    fitted = pickle.loads(pickle.dumps(calibrators.fit("beta", first.logits, first.labels)))
    found = fitted.fit(second.logits, second.labels)(second.logits)
    assert torch.equal(found, calibrators.fit("beta", second.logits, second.labels)(second.logits))
