"""Cross-entropy training: the baseline of every comparison."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from calibration.complexity import MethodComplexity
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import METHODS, Numbers
from calibration.models import Output


@METHODS.register("standard")
class Standard(LossMethod):
    """L = −log p_y."""

    description = "cross-entropy"
    complexity = MethodComplexity.PLAIN

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(output.logits, labels)
