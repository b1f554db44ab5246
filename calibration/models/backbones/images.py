"""Networks for images with a common form of preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from calibration.data.dataset import Kind
from calibration.models.backbones.backbone import Backbone
from calibration.models.backbones.encoder import Encoder

_CHANNELS = 3
Interpolation = Literal["bilinear", "bicubic"]


class Preprocessing(NamedTuple):
    """The whole image resized to ``size`` × ``size``, then (x − mean) / deviation per channel."""

    size: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    interpolation: Interpolation


class ImageBackbone(Backbone):
    """A family of networks for images."""

    takes: ClassVar[Kind] = "image"
    tunable: ClassVar[bool] = True

    size: Annotated[
        int | None,
        Field(ge=8, le=2048, description="side of the resized image; by default the network's own"),
    ] = None


class ImageEncoder(Encoder):
    """Embeds images of bytes or of numbers from 0 to 1; grey ones as three equal channels."""

    def __init__(self, name: str, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__(name, network, preprocessing._asdict())
        self.how = preprocessing

    def prepared(self, inputs: Tensor) -> Tensor:
        """The network's inputs. Raises ``ValueError`` for inputs that are not images."""
        if inputs.ndim != 4 or inputs.shape[1] not in (1, _CHANNELS):
            raise ValueError(
                f"{self.name} takes images with 1 or {_CHANNELS} channels; found inputs of shape "
                f"{tuple(inputs.shape[1:])}"
            )
        if inputs.dtype == torch.uint8:
            images = inputs.float() / 255
        else:
            images = inputs.float()
            if not bool(((images >= 0) & (images <= 1)).all()):
                raise ValueError(
                    f"{self.name} takes images of bytes, or of numbers from 0 to 1; found "
                    f"{float(images.min()):g} … {float(images.max()):g}"
                )
        images = images.expand(-1, _CHANNELS, -1, -1)
        size, mean, deviation, mode = self.how
        if images.shape[2:] != (size, size):
            images = F.interpolate(images, (size, size), mode=mode, antialias=True)
        shift, scale = (
            torch.tensor(values, device=images.device)[:, None, None]
            for values in (mean, deviation)
        )
        return (images - shift) / scale

    def save(self, directory: Path) -> None:
        """Write the network's state dict."""
        torch.save(self.network.state_dict(), directory / "weights.pt")


def interpolation(name: Any) -> Interpolation:
    """The closest interpolation that is available for tensors."""
    return "bicubic" if "bicubic" in str(name).lower() else "bilinear"
