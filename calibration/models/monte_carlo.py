"""Monte Carlo dropout: predictions averaged over passes with dropout (Gal and Ghahramani 2016)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from calibration.models.model import ModelOptions
from calibration.models.output import Network, Output


class DropoutModelOptions(ModelOptions):
    """Base of the models with dropout, which can keep it for predictions."""

    dropout: float = 0.0
    mc_dropout: Annotated[
        int,
        Field(ge=0, le=1000, description="passes with dropout that a prediction averages; 0: none"),
    ] = 0

    @model_validator(mode="after")
    def _has_dropout(self) -> Self:
        if self.mc_dropout and not self.dropout:
            raise ValueError("mc_dropout averages passes with dropout; set dropout above 0")
        return self

    def predicting(self, network: Network) -> Network:
        """The network as it is trained and used for predictions."""
        return MonteCarloDropout(network, self.mc_dropout) if self.mc_dropout else network


class MonteCarloDropout(Network):
    """A network whose predictions are the mean probabilities of T passes with dropout.

    In training it is the network itself. In evaluation its logits are log (1/T) Σ_t softmax(z_t)
    and its features the mean over the passes. Pass t has the same masks for every row and every
    call, drawn once from a fixed seed: T samples of the network's weights, so that a prediction
    depends only on its row and can be repeated. A prediction costs T passes.
    """

    def __init__(self, network: Network, passes: int) -> None:
        super().__init__()
        self.network = network
        self.passes = passes
        self._layers = _replace_dropout(network)

    def forward(self, inputs: Tensor) -> Output:
        """One pass in training, the mean of all passes in evaluation."""
        if self.training:
            output: Output = self.network(inputs)
            return output
        outputs = [self._sampled(inputs, number) for number in range(self.passes)]
        log_p = torch.stack([output.logits.log_softmax(dim=-1) for output in outputs])
        logits = log_p.logsumexp(dim=0) - math.log(self.passes)
        return Output(logits, torch.stack([output.features for output in outputs]).mean(dim=0))

    def _sampled(self, inputs: Tensor, number: int) -> Output:
        for layer in self._layers:
            layer.sample = number
        try:
            output: Output = self.network(inputs)
        finally:
            for layer in self._layers:
                layer.sample = None
        return output


class SampledDropout(nn.Module):
    """Dropout, or in evaluation mask number ``sample`` of the layer at ``place``."""

    def __init__(self, share: float, place: int) -> None:
        super().__init__()
        self.share = share
        self.place = place
        self.sample: int | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs with a share of their units dropped, and the rest scaled up."""
        if self.training or self.sample is None:
            return F.dropout(inputs, self.share, self.training)
        kept = _mask(tuple(inputs.shape[1:]), self.share, self.place, self.sample)
        return inputs * kept.to(inputs)


@lru_cache(maxsize=4096)
def _mask(shape: tuple[int, ...], share: float, place: int, sample: int) -> Tensor:
    """1/(1 − share) where a unit is kept and 0 where it is dropped."""
    drawn = np.random.default_rng([place, sample]).random(shape)
    return torch.from_numpy((drawn >= share) / (1 - share))


def _replace_dropout(network: nn.Module) -> list[SampledDropout]:
    """Replace every ``nn.Dropout`` by ``SampledDropout``."""
    made: list[SampledDropout] = []
    for owner in list(network.modules()):
        for name, layer in owner.named_children():
            if isinstance(layer, nn.Dropout):
                made.append(SampledDropout(layer.p, len(made)))
                setattr(owner, name, made[-1])
    return made
