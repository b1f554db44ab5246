"""Makes ``letters_backbone.safetensors``: a small network of timm that knows printed letters.

``python -m sweeps.specs.letters_backbone FILE`` draws the 26 capital letters with the fonts that
come with matplotlib, turned, shifted, blurred and shrunk to 8×8 pixels, and trains ``test_resnet``
on them for about a minute of one core. It has seen no digit: what ``backbone_heads.yaml``
measures on digits is what transfers.
"""

from __future__ import annotations

import string
import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from torch.nn import functional as F

_NETWORK = "test_resnet.r160_in1k"
_SIZE, _DRAWN = 16, 64
_IMAGES, _STEPS, _BATCH = 6_000, 250, 64


def _draw(count: int, rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """White letters on black as (N, 1, 8, 8), and their positions in the alphabet."""
    place = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    names = [*sorted(p.name for p in place.glob("DejaVuS*.ttf")), "cmr10.ttf", "cmss10.ttf"]
    fonts = [ImageFont.truetype(str(place / name), size) for name in names for size in (44, 54)]
    labels = rng.integers(0, 26, count)
    images = np.empty((count, 1, 8, 8), dtype=np.uint8)
    for row, label in enumerate(labels):
        canvas = Image.new("L", (_DRAWN, _DRAWN))
        x, y = (_DRAWN / 2 + rng.uniform(-5, 5, 2)).tolist()
        font = fonts[rng.integers(len(fonts))]
        letter = string.ascii_uppercase[label]
        ImageDraw.Draw(canvas).text((x, y), letter, font=font, fill=255, anchor="mm")
        canvas = canvas.rotate(float(rng.uniform(-20, 20)), Image.Resampling.BILINEAR)
        canvas = canvas.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 2))))
        images[row, 0] = np.asarray(canvas.resize((8, 8), Image.Resampling.BOX))
    return images, labels


def main(path: Path) -> None:
    """Train the network and save it in half precision, without its classifier."""
    from safetensors.torch import save_file

    from calibration.models.backbones.images import ImageEncoder, Preprocessing
    from calibration.models.backbones.torchvision_models import complete_torchvision

    complete_torchvision()
    import timm

    torch.manual_seed(0)
    drawn, numbers = _draw(_IMAGES, np.random.default_rng(0))
    images, labels = torch.from_numpy(drawn), torch.from_numpy(numbers)
    network = timm.create_model(_NETWORK, pretrained=False, num_classes=0)
    about = network.pretrained_cfg
    how = Preprocessing(_SIZE, about["mean"], about["std"], "bilinear")
    prepared = ImageEncoder(_NETWORK, network, how).prepared
    network.requires_grad_(True).train()
    head = torch.nn.Linear(network.num_features, 26)
    optimiser = torch.optim.AdamW([*network.parameters(), *head.parameters()], lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, _STEPS)
    for step in range(_STEPS):
        rows = torch.randint(_IMAGES - 1000, (_BATCH,))
        loss = F.cross_entropy(head(network(prepared(images[rows]))), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    network.eval()
    with torch.no_grad():
        held = slice(_IMAGES - 1000, None)
        right = head(network(prepared(images[held]))).argmax(-1) == labels[held]
    print(f"accuracy on 1000 other letters: {float(right.float().mean()):.3f}")
    state = {
        name: tensor.half().contiguous() if tensor.is_floating_point() else tensor
        for name, tensor in network.state_dict().items()
    }
    save_file(state, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
