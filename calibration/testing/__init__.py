"""Conformance checks for one's own parts: run them in your test-suite.

from calibration.testing import check_calibrator, check_learner, check_method

def test_my_calibrator_keeps_the_contract():
    check_calibrator(MyCalibrator)

def test_my_estimator_keeps_the_contract():
    check_learner(MyEstimator)

def test_my_method_keeps_the_contract():
    check_method(MyMethod)
"""

from calibration.testing.calibrators import check_calibrator
from calibration.testing.contract import ContractError
from calibration.testing.learners import check_learner
from calibration.testing.methods import check_method

__all__ = ["ContractError", "check_calibrator", "check_learner", "check_method"]
