"""Networks of torchvision."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from calibration.models.backbones.encoder import Encoder
from calibration.models.backbones.images import (
    ImageBackbone,
    ImageEncoder,
    Preprocessing,
    interpolation,
)
from calibration.models.backbones.weights import load_weights, read_weights
from calibration.models.model import MODELS
from calibration.registry import unknown_name

_LACKING = ("nms", "qnms")


@MODELS.register("torchvision:")
class TorchvisionBackbone(ImageBackbone):
    """Pretrained network of torchvision under a trained head: ``torchvision:resnet18``."""

    package: ClassVar[str] = "torchvision"
    imports: ClassVar[tuple[str, ...]] = ("torchvision", "safetensors")

    def encoder(self, name: str) -> Encoder:
        """The network up to the inputs of its last linear layer."""
        complete_torchvision()
        from torchvision import models

        if name not in models.list_models(module=models):
            raise unknown_name("network of torchvision", name, models.list_models(module=models))
        default = models.get_model_weights(name).DEFAULT
        if isinstance(self.weights, Path):
            network = models.get_model(name, weights=None)
            given, head = read_weights(self.weights), _without_head(network, name)
            load_weights(network, given, self.weights, f"torchvision:{name}", [head])
        else:
            network = _downloaded(models, name, default)
            _without_head(network, name)
        about = default.transforms()
        how = Preprocessing(
            self.size or int(about.crop_size[0]),
            tuple(about.mean),
            tuple(about.std),
            interpolation(about.interpolation),
        )
        return ImageEncoder(f"torchvision:{name}", network, how)


def _downloaded(models: Any, name: str, default: Any) -> Any:
    try:
        return models.get_model(name, weights=default)
    except Exception as error:  # whatever the network raises
        raise ValueError(
            f"the default weights of torchvision:{name} cannot be downloaded here: {error}; fetch "
            f"{default.url} on a machine with a network and write weights: FILE"
        ) from error


def _without_head(network: nn.Module, name: str) -> str:
    """Replace the last linear layer, the classifier, by the identity; return its name."""
    linear = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError(f"torchvision:{name} does not end in a linear layer; choose another")
    head: str = linear[-1]
    owner, _, last = head.rpartition(".")
    setattr(network.get_submodule(owner), last, nn.Identity())
    return head


@cache
def complete_torchvision() -> None:
    """Make torchvision importable with a torch that it was not compiled for.

    Its wheels on PyPI are compiled with CUDA; with a CPU-only torch their operators cannot be
    loaded, and the import fails at two that it registers unconditionally. Networks need none of
    them: declared here, they can be registered, and only a call to one of them fails.
    """
    found = find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        return
    library = Path(next(iter(found.submodule_search_locations))) / "_C.so"
    try:
        torch.ops.load_library(str(library))
    except OSError:
        for name in _LACKING:
            torch.library.define(
                f"torchvision::{name}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
