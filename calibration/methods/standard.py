"""Cross-entropy training: the baseline of every comparison."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from calibration.complexity import MethodComplexity
from calibration.methods.loss_method import LossAndSlope, LossMethod
from calibration.methods.method import METHODS, Numbers
from calibration.models import Output
from calibration.steady import cross_entropy_and_slope


@METHODS.register("standard")
class Standard(LossMethod):
    """L = −log p_y."""

    description = "cross-entropy"
    complexity = MethodComplexity.PLAIN

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(output.logits, labels)

    @property
    def by_hand(self) -> LossAndSlope | None:
        """(softmax − one-hot) / N."""
        return cross_entropy_and_slope if type(self).loss is Standard.loss else None
