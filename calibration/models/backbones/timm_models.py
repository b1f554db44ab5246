"""Networks of timm."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from calibration.models.backbones.encoder import Encoder
from calibration.models.backbones.images import (
    ImageBackbone,
    ImageEncoder,
    Preprocessing,
    interpolation,
)
from calibration.models.backbones.torchvision_models import complete_torchvision
from calibration.models.backbones.weights import load_weights, read_weights
from calibration.models.model import MODELS
from calibration.registry import unknown_name


@MODELS.register("timm:")
class TimmBackbone(ImageBackbone):
    """Pretrained network of timm under a trained head: ``timm:resnet18.a1_in1k``."""

    package: ClassVar[str] = "timm"
    imports: ClassVar[tuple[str, ...]] = ("timm", "torchvision", "safetensors")

    def encoder(self, name: str) -> Encoder:
        """The network without its classifier, as timm pools it."""
        complete_torchvision()
        import timm

        if not timm.is_model(name):
            raise unknown_name("network of timm", name, timm.list_models())
        if isinstance(self.weights, Path):
            network = _made(timm, name)
            head = network.pretrained_cfg.get("classifier") or ()
            heads = [head] if isinstance(head, str) else list(head)
            load_weights(network, read_weights(self.weights), self.weights, f"timm:{name}", heads)
        else:
            network = self._downloaded(timm, name)
        about = network.pretrained_cfg
        how = Preprocessing(
            self.size or int(about["input_size"][-1]),
            tuple(about["mean"]),
            tuple(about["std"]),
            interpolation(about["interpolation"]),
        )
        return ImageEncoder(f"timm:{name}", network, how)

    def _downloaded(self, timm: Any, name: str) -> Any:
        try:
            return timm.create_model(name, pretrained=True, num_classes=0)
        except Exception as error:  # whatever the network or the hub raises
            raise ValueError(
                f"the default weights of timm:{name} cannot be downloaded here: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}; on a "
                "machine with a network, run torch.save(timm.create_model("
                f"{name!r}, pretrained=True).state_dict(), 'weights.pt') and write weights: "
                "weights.pt"
            ) from error


def _made(timm: Any, name: str) -> Any:
    try:
        return timm.create_model(name, pretrained=False, num_classes=0)
    except RuntimeError as error:  # the architecture exists, but not the tag after the dot
        raise ValueError(f"timm:{name}: {error}") from error
