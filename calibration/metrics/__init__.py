"""Metrics of calibration and accuracy: pure functions of predictions and labels.

Everything is computed in float64 on the device of the input, without gradients. The number of
classes is the last dimension of the probabilities. Top-label metrics take probabilities
(..., N, K) with labels (..., N), or confidence (..., N) with correct (..., N).

``METRICS`` describes them without loading torch; the functions are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calibration.metrics.catalogue import METRICS
from calibration.metrics.metric import Metric, Shown

if TYPE_CHECKING:
    from calibration.metrics.bootstrap import bootstrap_intervals
    from calibration.metrics.classwise import classwise_ace, classwise_ece
    from calibration.metrics.floor import NoiseFloor, noise_floor
    from calibration.metrics.kde import kde_ece
    from calibration.metrics.kernel import mmce
    from calibration.metrics.one_vs_rest import auroc, average_precision
    from calibration.metrics.panels import panel, panel_of_each
    from calibration.metrics.proper_scores import (
        BrierParts,
        brier,
        brier_decomposition,
        error,
        nll,
        nll_from_logits,
    )
    from calibration.metrics.rare import (
        BlindSpots,
        base_rate,
        blind_spots,
        rare_class_bias,
        rare_class_ece,
    )
    from calibration.metrics.refinement import (
        NllParts,
        nll_decomposition,
        nll_decomposition_from_logits,
    )
    from calibration.metrics.reliability import Bins, reliability_curve
    from calibration.metrics.selective import (
        RiskCoverage,
        accuracy_at_coverage,
        aurc,
        risk_coverage_curve,
    )
    from calibration.metrics.skill import balanced_error, brier_skill
    from calibration.metrics.smooth import sece, smooth_ece
    from calibration.metrics.synthetic import posterior_gap, true_ce
    from calibration.metrics.top_label import (
        BinRobustness,
        MaximumError,
        ace,
        average_ce,
        bin_robustness,
        ece,
        ks,
        kuiper,
        l2_debiased,
        mce,
        mce_with_count,
        overconfidence,
    )

__all__ = [
    "METRICS",
    "BinRobustness",
    "Bins",
    "BlindSpots",
    "BrierParts",
    "MaximumError",
    "Metric",
    "NllParts",
    "NoiseFloor",
    "RiskCoverage",
    "Shown",
    "accuracy_at_coverage",
    "ace",
    "aurc",
    "auroc",
    "average_ce",
    "average_precision",
    "balanced_error",
    "base_rate",
    "bin_robustness",
    "blind_spots",
    "bootstrap_intervals",
    "brier",
    "brier_decomposition",
    "brier_skill",
    "classwise_ace",
    "classwise_ece",
    "ece",
    "error",
    "kde_ece",
    "ks",
    "kuiper",
    "l2_debiased",
    "mce",
    "mce_with_count",
    "mmce",
    "nll",
    "nll_decomposition",
    "nll_decomposition_from_logits",
    "nll_from_logits",
    "noise_floor",
    "overconfidence",
    "panel",
    "panel_of_each",
    "posterior_gap",
    "rare_class_bias",
    "rare_class_ece",
    "reliability_curve",
    "risk_coverage_curve",
    "sece",
    "smooth_ece",
    "true_ce",
]

_HOMES = (
    *("top_label", "proper_scores", "classwise", "kernel", "smooth", "selective", "refinement"),
    *(
        "one_vs_rest",
        "rare",
        "skill",
        "kde",
        "reliability",
        "floor",
        "synthetic",
        "bootstrap",
        "panels",
    ),
)


def __getattr__(name: str) -> Any:
    """Load a function from its module on first access."""
    if name in __all__:
        for home in _HOMES:
            found = getattr(import_module(f"{__name__}.{home}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
