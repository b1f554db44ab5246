"""Published initialisations."""

from __future__ import annotations

from torch import nn


def he_normal(module: nn.Module) -> None:
    """Draw every convolution's weights from N(0, 2 / fan_out) (He et al. 2015, Eq. 14).

    Keeps the variance of gradients from layer to layer; fan_out = output channels × kernel
    area. Batch normalisation stays at scale 1 and shift 0, linear layers at PyTorch's default.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
