"""Where methods and calibrators stand on the scales of complexity."""

from __future__ import annotations

import pytest

from calibration.calibrators import CALIBRATORS, Calibrator
from calibration.complexity import CalibratorComplexity, MethodComplexity
from calibration.methods import METHODS, Method
from calibration.methods.meta import MetaMethod
from calibration.testing import ContractError
from calibration.testing.contract import require_complexity


def test_only_cross_entropy_is_plain_and_only_no_map_fits_nothing() -> None:
    assert [n for n in METHODS if METHODS[n].complexity == MethodComplexity.PLAIN] == ["standard"]
    nothing = [n for n in CALIBRATORS if CALIBRATORS[n].complexity == CalibratorComplexity.NONE]
    one_number = CalibratorComplexity.ONE_NUMBER
    assert nothing == ["identity"]
    assert [n for n in CALIBRATORS if CALIBRATORS[n].complexity == one_number] == ["temperature"]


@pytest.mark.parametrize("name", list(METHODS))
def test_what_learns_from_held_out_rows_is_not_called_simpler_than_that(name: str) -> None:
    method = METHODS[name]
    if method(method.Hyperparameters()).needs_held_out:
        assert method.complexity >= MethodComplexity.HELD_OUT
    assert not issubclass(method, MetaMethod) or method.complexity == MethodComplexity.BILEVEL


@pytest.mark.parametrize("name", list(CALIBRATORS))
def test_maps_that_keep_a_curve_are_above_all_that_keep_numbers(name: str) -> None:
    kind = CALIBRATORS[name]
    curves = {"cdf_spline", "spline", "scaling_binning", "kernel", "bbq", "venn_abers"}
    has_curve = name in curves or name.startswith("histogram") or "isotonic" in name
    assert (kind.complexity >= CalibratorComplexity.PIECES) == has_curve


def test_what_declares_nothing_is_taken_for_the_most_complex() -> None:
    assert Method.complexity == max(MethodComplexity)
    assert Calibrator.complexity == max(CalibratorComplexity)


@pytest.mark.parametrize("found", [-1, 1.5, True, "low", None])
def test_a_complexity_that_cannot_be_compared_breaks_the_contract(found: object) -> None:
    with pytest.raises(ContractError, match=r"Mine: complexity must be a whole number from 0"):
        require_complexity(found, "Mine")
    require_complexity(MethodComplexity.ROWS, "Mine")
