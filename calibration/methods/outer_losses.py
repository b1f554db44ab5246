"""The outer losses of meta-learned methods: cross-entropy and a calibration error, weighted."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.methods.meta import MetaHyperparameters
from calibration.methods.method import Numbers
from calibration.methods.objective_hyperparameters import (
    AccuracyTemperature,
    Bandwidth,
    BinTemperature,
)
from calibration.models import Output
from calibration.objectives import dece, sece

Weight = Annotated[float, Field(ge=0, le=1000)]


class OuterDeceHyperparameters(MetaHyperparameters):
    """The outer loss nll_weight · CE + dece_weight · DECE and DECE's temperatures.

    ``accuracy_temperature`` (t_a) sharpens the soft rank, ``bin_temperature`` (t_b) blurs the
    bins. Meta-Calibration's own mixture is 1 : 0.5 (Bohdal et al. 2021).
    """

    nll_weight: Weight = 0.0
    dece_weight: Weight = 1.0
    accuracy_temperature: AccuracyTemperature = 100.0
    bin_temperature: BinTemperature = 0.01


class OuterSeceHyperparameters(MetaHyperparameters):
    """The outer loss nll_weight · CE + sece_weight · SECE and SECE's kernel bandwidth h.

    h = 0.01 suits batches of 128 CIFAR images; small held-out sets need 0.05–0.1.
    """

    nll_weight: Weight = 0.0
    sece_weight: Weight = 1.0
    bandwidth: Bandwidth = 0.05
    accuracy_temperature: Annotated[float, Field(gt=0, le=1e4)] = 100.0


def dece_loss(output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
    """nll_weight · CE + dece_weight · DECE."""
    error = dece(
        output.logits,
        labels,
        accuracy_temperature=numbers["accuracy_temperature"],
        bin_temperature=numbers["bin_temperature"],
    )
    plain = F.cross_entropy(output.logits, labels)
    return numbers["nll_weight"] * plain + numbers["dece_weight"] * error


def sece_loss(output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
    """nll_weight · CE + sece_weight · SECE."""
    error = sece(
        output.logits,
        labels,
        bandwidth=numbers["bandwidth"],
        accuracy_temperature=numbers["accuracy_temperature"],
    )
    plain = F.cross_entropy(output.logits, labels)
    return numbers["nll_weight"] * plain + numbers["sece_weight"] * error
