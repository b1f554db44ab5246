"""A fine-tuned network, exported as what it has become: a backbone of its own and a head."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibration.data.transforms import Standardise
from calibration.models import Encoder, FunctionalModel, build_model
from sweeps.spec.schema import Component


class Separated(NamedTuple):
    """The encoder with the trained weights, the head's tensors, and an identity between them."""

    encoder: Encoder
    head: dict[str, Any]
    transform: Standardise


def separated(
    model: Component, trained: dict[str, Any], encoder: Encoder, row: Tensor, classes: int
) -> Separated:
    """Take the network that ``TrainingRun.network`` gave apart; ``row`` is any raw input."""
    shape = tuple(encoder.prepared(row).shape[1:])
    function = FunctionalModel(build_model(model.name, model.options, shape, classes))
    parameters, buffers = trained["parameters"], trained["buffers"]
    everything = function.unflatten(parameters) | buffers
    tuned = encoder.with_weights(_under(f"backbone.{encoder.inside}", everything))
    width = tuned.embed(row, batch_size=1).shape[1]
    head = trained | {
        "parameters": parameters[function.backbone :].clone(),
        "buffers": _under("head.", buffers),
    }
    unchanged = Standardise(
        torch.zeros(width, dtype=torch.float64), torch.ones(width, dtype=torch.float64)
    )
    return Separated(tuned, head, unchanged)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): value for n, value in tensors.items() if n.startswith(prefix)}
