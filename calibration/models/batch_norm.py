"""Batch normalisation that never changes a tensor in place.

Stock layers update their running statistics in place, which torch.func refuses and which would
change the buffers a caller still holds. The layers here assign new tensors instead.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class _AssigningStatistics(nn.modules.batchnorm._BatchNorm):
    """The same numbers as the stock layer; running statistics are assigned, without gradient.

    Derivatives are correct in every order under torch.func, and up to the second under plain
    autograd (from the third on, torch's fused kernel treats its statistics as constants).
    """

    def forward(self, input: Tensor) -> Tensor:
        tracking = self.training and self.track_running_stats
        frozen = not self.training and self.running_mean is not None
        transformed = torch._C._are_functorch_transforms_active()
        if frozen or not (tracking or transformed):
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        # The fused kernel's Jacobians of a gradient (torch.func.hessian) are silently wrong.
        normalise = self._normalise_by_primitives if transformed else self._normalise
        output, mean, variance = normalise(input)
        if tracking:
            self._assign(mean.detach(), variance.detach())
        return output

    def _normalise(self, input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # With momentum 1 the kernel leaves the batch's own mean and unbiased variance in fresh
        # tensors, without another pass over the activations.
        assert self.running_mean is not None
        mean, variance = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_mean)
        output = nn.functional.batch_norm(
            input, mean, variance, self.weight, self.bias, True, 1.0, self.eps
        )
        return output, mean, variance

    def _normalise_by_primitives(self, input: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count = input.numel() // self.num_features
        if count < 2:
            raise ValueError(
                "batch normalisation needs more than one value per channel in training; "
                f"got input of shape {tuple(input.shape)}"
            )
        channel_last = input.movedim(1, -1)
        variance, mean = torch.var_mean(channel_last, tuple(range(input.dim() - 1)), correction=0)
        output = (channel_last - mean) * torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            output = output * self.weight + self.bias
        return output.movedim(-1, 1), mean, variance * (count / (count - 1))

    def _assign(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        seen = self.num_batches_tracked + 1
        # Without momentum the statistics are plain averages over all batches.
        rate = 1.0 / seen.to(mean.dtype) if self.momentum is None else self.momentum
        self.running_mean = (1 - rate) * self.running_mean + rate * mean
        self.running_var = (1 - rate) * self.running_var + rate * variance
        self.num_batches_tracked = seen


class AssigningBatchNorm1d(_AssigningStatistics, nn.BatchNorm1d):
    """``nn.BatchNorm1d`` with assigned statistics."""


class AssigningBatchNorm2d(_AssigningStatistics, nn.BatchNorm2d):
    """``nn.BatchNorm2d`` with assigned statistics."""


class AssigningBatchNorm3d(_AssigningStatistics, nn.BatchNorm3d):
    """``nn.BatchNorm3d`` with assigned statistics."""


_ASSIGNING: dict[type[nn.Module], type[_AssigningStatistics]] = {
    nn.BatchNorm1d: AssigningBatchNorm1d,
    nn.BatchNorm2d: AssigningBatchNorm2d,
    nn.BatchNorm3d: AssigningBatchNorm3d,
}


def assign_statistics(module: nn.Module) -> None:
    """Turn every stock batch-normalisation layer of ``module`` into its assigning variant.

    Subclasses of the stock layers keep their own forward.
    """
    for layer in module.modules():
        variant = _ASSIGNING.get(type(layer))
        if variant is not None:
            # A new object would have to replace the old one at every reference to it, including
            # plain attributes of a user's module; a new class keeps the identity.
            layer.__class__ = variant


def assigns_statistics(layer: nn.Module) -> bool:
    """Whether ``layer`` does not modify the statistics it is given."""
    return isinstance(layer, _AssigningStatistics)
