"""Bootstrap of the metrics of rare classes, from the influence of each row.

A smooth function of the rows' weights is, to first order, its value plus the sum of the rows'
influences: the infinitesimal jackknife (Efron 1982), for AUROC the components of DeLong et
al. 1988. For a resample this is one product with its counts, for any number of classes; sorting
every class again on every resample would take a thousand times as long. The rarest class is
determined once, on the sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from calibration.metrics import bootstrap_features as features
from calibration.metrics.bootstrap import mean_resample, norm_resample
from calibration.metrics.metric import Metric
from calibration.metrics.one_vs_rest import influences
from calibration.metrics.predictions import Predictions
from calibration.metrics.rare import rarest_alone
from calibration.metrics.skill import balanced_error_influences, brier_skill_influences

if TYPE_CHECKING:
    from calibration.metrics.metric import Resample


def _linear(influence: Callable[[Predictions], Tensor]) -> Resample:
    """A metric's value plus the sum of the influences (N) of the rows drawn."""

    added = mean_resample(lambda predictions: influence(predictions) * len(predictions.confidence))

    def resample(
        metric: Metric, predictions: Predictions, bins: int, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        moved, bias = added(metric, predictions, bins, counts)
        return metric.measure(predictions, bins) + moved, bias

    return resample


resampled_auroc = _linear(lambda predictions: influences(predictions)[:, 0])
resampled_average_precision = _linear(lambda predictions: influences(predictions)[:, 1])
resampled_balanced_error = _linear(balanced_error_influences)
resampled_brier_skill = _linear(brier_skill_influences)
resampled_overconfidence = mean_resample(features.signed_gap)
resampled_base_rate = mean_resample(lambda p: rarest_alone(p).correct.double())
resampled_rare_class_bias = mean_resample(lambda p: features.signed_gap(rarest_alone(p)))
resampled_rare_class_ece = norm_resample(
    lambda predictions, bins: features.ace_features(rarest_alone(predictions), bins)
)
