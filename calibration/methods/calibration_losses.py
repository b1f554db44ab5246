"""The members of the family base + β · objective, one for each calibration objective.

β is on the scale of the objectives in ``calibration.objectives``, all of them means that do
not grow with the batch; it is searched where the two terms' gradients are comparable. The
defaults are cautious: a network that predicts the base rates is calibrated, and a large β
keeps it there in its first epochs. The schedule ``switch`` avoids that.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from calibration.hyperparameters import LogUniform, Uniform
from calibration.methods.method import METHODS
from calibration.methods.objective_hyperparameters import (
    AccuracyTemperature,
    Bandwidth,
    BinTemperature,
)
from calibration.methods.regularised import Regularised, RegularisedHyperparameters

_Weight = Field(ge=0, le=1000)
_Bins = Annotated[int, Field(ge=1, le=200)]


class MmceHyperparameters(RegularisedHyperparameters):
    """β: the often quoted 8–9 belong to published code for the weighted form, not here."""

    beta: Annotated[float, _Weight, LogUniform(0.25, 8.0)] = 1.0


@METHODS.register("mmce")
class Mmce(Regularised):
    """L = base + β·MMCE, the kernel mean of calibration gaps (Kumar et al. 2018)."""

    description = "base loss + β · maximum mean calibration error"
    Hyperparameters = MmceHyperparameters
    objective = "mmce"


class MmceWeightedHyperparameters(RegularisedHyperparameters):
    """β in units of the paper's formula.

    The often quoted 8–9 belong to code that divides by the counts of errors and successes
    twice: with n errors in a batch they correspond to about 8/n here.
    """

    beta: Annotated[float, _Weight, LogUniform(0.05, 4.0)] = 0.5


@METHODS.register("mmce_weighted")
class MmceWeighted(Regularised):
    """L = base + β·MMCE_w, errors and successes weighted by their own number.

    The weighted form of Kumar et al. 2018.
    """

    description = "base loss + β · MMCE with errors and successes balanced"
    Hyperparameters = MmceWeightedHyperparameters
    objective = "mmce_weighted"


class MdcaHyperparameters(RegularisedHyperparameters):
    """β is large because the objective, a mean over K classes, is small."""

    beta: Annotated[float, _Weight, LogUniform(1.0, 50.0)] = 5.0


@METHODS.register("mdca")
class Mdca(Regularised):
    """L = base + β·mean_k |mean p_k − frequency of k| (Hebbalaguppe et al. 2022)."""

    description = "base loss + β · class-wise gap of mean probability and frequency"
    Hyperparameters = MdcaHyperparameters
    objective = "mdca"


class DcaHyperparameters(RegularisedHyperparameters):
    """β: the objective is an absolute value, whose gradient does not fade near 0."""

    beta: Annotated[float, _Weight, LogUniform(0.25, 25.0)] = 2.0


@METHODS.register("dca")
class Dca(Regularised):
    """L = base + β·|mean confidence − accuracy| (Liang et al. 2020)."""

    description = "base loss + β · gap of mean confidence and accuracy"
    Hyperparameters = DcaHyperparameters
    objective = "dca"


class SbEceHyperparameters(RegularisedHyperparameters):
    """``bins`` soft bins, whose memberships sharpen as ``temperature`` falls."""

    beta: Annotated[float, _Weight, LogUniform(0.05, 5.0)] = 0.25
    bins: _Bins = 15
    temperature: Annotated[float, Field(gt=0, le=10), LogUniform(1e-3, 0.1)] = 0.01


@METHODS.register("sb_ece")
class SbEce(Regularised):
    """L = base + β·SB-ECE, the L2 norm's ECE over soft bins (Karandikar et al. 2021)."""

    description = "base loss + β · soft-binned ECE"
    Hyperparameters = SbEceHyperparameters
    objective = "sb_ece"


class AvucHyperparameters(RegularisedHyperparameters):
    """``threshold``: the fraction of the largest entropy above which a prediction is uncertain.

    ``temperature``: how gradual the transition from certain to uncertain is.
    """

    beta: Annotated[float, _Weight, LogUniform(0.1, 10.0)] = 1.0
    threshold: Annotated[float, Field(gt=0, lt=1), Uniform(0.1, 0.9)] = 0.5
    temperature: Annotated[float, Field(gt=0, le=10), LogUniform(0.01, 1.0)] = 0.1


@METHODS.register("avuc")
class Avuc(Regularised):
    """L = base + β·S-AvUC, accuracy against uncertainty (Karandikar et al. 2021)."""

    description = "base loss + β · soft accuracy-versus-uncertainty loss"
    Hyperparameters = AvucHyperparameters
    objective = "avuc"


class KsHyperparameters(RegularisedHyperparameters):
    """``sharpness``: how close the smooth maximum comes to the largest cumulative gap."""

    beta: Annotated[float, _Weight, LogUniform(0.1, 10.0)] = 1.0
    sharpness: Annotated[float, Field(gt=0, le=1e4), LogUniform(10.0, 1000.0)] = 100.0


@METHODS.register("ks")
class Ks(Regularised):
    """L = base + β·soft Kolmogorov–Smirnov calibration error (after Gupta et al. 2021)."""

    description = "base loss + β · smooth Kolmogorov–Smirnov calibration error"
    Hyperparameters = KsHyperparameters
    objective = "soft_ks"


class SplineKsHyperparameters(KsHyperparameters):
    """``knots`` of the spline through the cumulative gap, equally spaced."""

    knots: Annotated[int, Field(ge=3, le=50)] = 6


@METHODS.register("spline_ks")
class SplineKs(Regularised):
    """L = base + β·KS error of a spline through the cumulative gap (after Gupta et al. 2021).

    ``ks`` compares the cumulative sums themselves, which jump from sample to sample.
    """

    description = "base loss + β · Kolmogorov–Smirnov error of a spline of the cumulative gap"
    Hyperparameters = SplineKsHyperparameters
    objective = "spline_ks"


class BrierHyperparameters(RegularisedHyperparameters):
    """Like ``sb_ece``; β is larger because the gaps are squared."""

    beta: Annotated[float, _Weight, LogUniform(0.25, 25.0)] = 1.0
    bins: _Bins = 15
    temperature: Annotated[float, Field(gt=0, le=10), LogUniform(1e-3, 0.1)] = 0.01


@METHODS.register("brier")
class Brier(Regularised):
    """L = base + β·Σ_m w_m (conf_m − acc_m)², the Brier score's reliability part.

    The decomposition is that of Murphy 1973. To train with the Brier score itself, use
    ``base: brier`` of any member with β = 0.
    """

    description = "base loss + β · reliability part of the Brier score"
    Hyperparameters = BrierHyperparameters
    objective = "brier_reliability"


class ConfidencePenaltyHyperparameters(RegularisedHyperparameters):
    """β: more than about 1 would flatten every prediction."""

    beta: Annotated[float, _Weight, LogUniform(0.01, 1.0)] = 0.1


@METHODS.register("confidence_penalty")
class ConfidencePenalty(Regularised):
    """L = base − β·mean entropy (Pereyra et al. 2017)."""

    description = "base loss − β · entropy of the predictions"
    Hyperparameters = ConfidencePenaltyHyperparameters
    objective = "confidence_penalty"


class DeceHyperparameters(RegularisedHyperparameters):
    """Soft accuracy sharpens with ``accuracy_temperature``, bins as ``bin_temperature`` falls."""

    beta: Annotated[float, _Weight, LogUniform(0.05, 5.0)] = 0.25
    bins: _Bins = 15
    accuracy_temperature: AccuracyTemperature = 100.0
    bin_temperature: BinTemperature = 0.01


@METHODS.register("dece")
class Dece(Regularised):
    """L = base + β·DECE, the differentiable ECE of Bohdal et al. 2021, minimised directly."""

    description = "base loss + β · differentiable ECE"
    Hyperparameters = DeceHyperparameters
    objective = "dece"


class SeceHyperparameters(RegularisedHyperparameters):
    """``bandwidth`` h of the kernel over confidence; small batches need a larger one."""

    beta: Annotated[float, _Weight, LogUniform(0.05, 5.0)] = 0.25
    bandwidth: Bandwidth = 0.05
    accuracy_temperature: Annotated[float, Field(gt=0, le=1e4)] = 100.0


@METHODS.register("sece")
class Sece(Regularised):
    """L = base + β·SECE, the kernel-smoothed ECE of Meta-Regularization, minimised directly."""

    description = "base loss + β · kernel-smoothed ECE"
    Hyperparameters = SeceHyperparameters
    objective = "sece"


class SoftHistogramHyperparameters(RegularisedHyperparameters):
    """``bins`` triangular bins on equally spaced centres."""

    beta: Annotated[float, _Weight, LogUniform(0.05, 5.0)] = 0.25
    bins: _Bins = 15


@METHODS.register("soft_histogram")
class SoftHistogram(Regularised):
    """L = base + β·ECE over a histogram with triangular bins (after Wang et al. 2016)."""

    description = "base loss + β · ECE over triangular histogram bins"
    Hyperparameters = SoftHistogramHyperparameters
    objective = "histogram_ece"
