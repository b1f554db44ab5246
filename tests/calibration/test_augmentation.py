"""Augmentations against Pillow, brute force and their own promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from calibration import augmentation
from calibration.augmentation import Augmentation, augmented
from calibration.cohort import Cohort
from calibration.data import PROTOCOLS, FixedDataset, Part
from calibration.methods import make_method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

NAMES = get_args(Augmentation)
IMAGES = torch.randint(0, 256, (6, 3, 9, 12), generator=torch.Generator().manual_seed(0)).byte()


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_pillow(change: Callable[[Image.Image], Image.Image]) -> Tensor:
    changed = [change(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in IMAGES]
    return torch.from_numpy(np.stack([np.asarray(image) for image in changed])).permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", NAMES)
def test_each_keeps_form_and_original_and_follows_its_seed(name: str) -> None:
    before = IMAGES.clone()
    one, again = (augmented(IMAGES, [name], generator()) for _ in range(2))
    assert (one.shape, one.dtype) == (IMAGES.shape, torch.uint8)
    assert torch.equal(one, again)
    assert torch.equal(IMAGES, before)
    assert not torch.equal(one, augmented(IMAGES, [name], generator(2)))
    alike = augmented(IMAGES[:1].repeat(40, 1, 1, 1), [name], generator())
    assert len({image.numpy().tobytes() for image in alike}) > 1, "every image has its own draw"


@pytest.mark.parametrize("name", [n for n in NAMES if n not in augmentation.EIGHT_BITS_ONLY])
def test_geometry_is_the_same_on_other_numbers(name: str) -> None:
    whole = augmented(IMAGES, [name], generator())
    assert torch.equal(augmented(IMAGES.float(), [name], generator()), whole.float())


@pytest.mark.parametrize("factor", [0.3, 1.0, 1.27])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (augmentation.brightness, ImageEnhance.Brightness),
        (augmentation.contrast, ImageEnhance.Contrast),
        (augmentation.saturation, ImageEnhance.Color),
        (augmentation.sharpness, ImageEnhance.Sharpness),
    ],
)
def test_enhancements_agree_with_pillow(ours: Any, theirs: Any, factor: float) -> None:
    found = ours(IMAGES, torch.full((len(IMAGES),), factor)).int()
    expected = by_pillow(lambda image: theirs(image).enhance(factor)).int()
    # Pillow rounds greys and means to whole numbers before it blends.
    assert int((found - expected).abs().max()) <= 2


def test_point_operations_agree_with_pillow() -> None:
    for bits in (1, 4, 7):
        theirs = by_pillow(lambda image, bits=bits: ImageOps.posterize(image, bits))
        assert torch.equal(augmentation.posterize(IMAGES, bits), theirs)
    assert torch.equal(
        augmentation.solarize(IMAGES, 100), by_pillow(lambda image: ImageOps.solarize(image, 100))
    )
    stretched = augmentation.autocontrast(IMAGES).int()
    assert int((stretched - by_pillow(ImageOps.autocontrast).int()).abs().max()) <= 1
    flat = torch.full((1, 3, 4, 4), 7, dtype=torch.uint8)
    assert torch.equal(augmentation.autocontrast(flat), flat)


def test_flips_and_crops_are_those_of_the_images() -> None:
    flipped = augmentation.flip(IMAGES, generator())
    kinds = [
        torch.equal(image, before.flip(2)) - torch.equal(image, before)
        for image, before in zip(flipped, IMAGES, strict=True)
    ]
    assert set(kinds) == {-1, 1}
    padded = torch.nn.functional.pad(IMAGES, (4,) * 4)
    for image, before in zip(augmentation.crop(IMAGES, generator()), padded, strict=True):
        windows = [before[:, y : y + 9, x : x + 12] for y in range(9) for x in range(9)]
        assert any(torch.equal(image, window) for window in windows)


def test_cutout_blackens_one_square_and_nothing_else() -> None:
    white = torch.full((200, 1, 8, 10), 255, dtype=torch.uint8)
    for (image,) in augmentation.cutout(white, generator()):
        rows, columns = (torch.nonzero((image == 0).any(dim)).flatten() for dim in (1, 0))
        assert 0 < len(rows) <= 4
        assert 0 < len(columns) <= 4
        assert bool((image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] == 0).all())
        assert int((image == 0).sum()) == len(rows) * len(columns)


def test_moved_pixels_come_from_where_the_matrix_says() -> None:
    def moved(*numbers: float) -> Tensor:
        return augmentation.affine(IMAGES, torch.tensor([numbers] * 6).float().reshape(6, 2, 3))

    assert torch.equal(moved(1, 0, 0, 0, 1, 0), IMAGES)
    assert torch.equal(moved(-1, 0, 0, 0, -1, 0), IMAGES.rot90(2, (2, 3)))
    shifted = moved(1, 0, 2, 0, 1, -1)
    assert torch.equal(shifted[:, :, 1:, :-2], IMAGES[:, :, :-1, 2:])
    assert not shifted[:, :, 0].any()
    assert not shifted[:, :, :, -2:].any()
    square = IMAGES[:, :, :, :9]
    quarter = torch.tensor([[0.0, -1, 0], [1, 0, 0]]).repeat(6, 1, 1)
    assert torch.equal(augmentation.affine(square, quarter), square.rot90(1, (2, 3)))


def run_of(names: Any, dtype: torch.dtype = torch.uint8) -> TrainingRun:
    inputs = torch.randint(0, 256, (80, 3, 8, 8), generator=generator()).to(dtype)
    rows = Part(inputs, torch.arange(80) % 2)
    splits = FixedDataset("noise", "image", rows, ("a", "b")).split(
        PROTOCOLS["honest"], 0, held_out=False
    )
    return TrainingRun(
        make_method("standard", {"lr": 0.01}),
        splits,
        model="mlp",
        model_options={"widths": (8,)},
        classes=2,
        config=TrainingConfig(epochs=3, batch_size=16, augmentation=names),
        seed=0,
    )


def finished(run: TrainingRun) -> TrainingRun:
    while not run.done:
        run.run_epoch()
    return run


def test_an_augmented_training_goes_on_as_if_it_had_never_stopped() -> None:
    whole = finished(run_of(NAMES))
    stopped = run_of(NAMES)
    stopped.run_epoch()
    continued = run_of(NAMES)
    continued.load_state_dict(stopped.state_dict())
    assert torch.equal(finished(continued).state.parameters, whole.state.parameters)
    assert not torch.equal(finished(run_of("none")).state.parameters, whole.state.parameters)
    cohort = Cohort([run_of(NAMES), run_of(NAMES)])
    while cohort.active:
        cohort.run_epoch()
    assert torch.equal(cohort.runs[1].state.parameters, whole.state.parameters)


def test_colours_are_refused_where_there_are_no_eight_bits() -> None:
    assert finished(run_of(("crop", "cutout"), torch.float32)).epoch == 3
    with pytest.raises(ValueError, match=r"'colour' works on images of 8 bits .* store them as"):
        run_of(("flip", "colour"), torch.float32)
