"""Fitted transforms as JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from calibration.data.saving import load_transform, save_transform
from calibration.data.transforms import Standardise


def test_transforms_are_saved_to_the_bit() -> None:
    inputs = torch.rand(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    fitted = Standardise.fit(inputs)
    again = load_transform(json.loads(json.dumps(save_transform(fitted))))
    assert torch.equal(again(inputs), fitted(inputs))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: save_transform(lambda inputs: inputs), "write it as a dataclass"),
        (lambda: save_transform(Standardise(torch.tensor([float("nan")]), torch.ones(1))), "nan"),
        (lambda: save_transform(Standardise(object(), torch.ones(1))), "Standardise.mean"),  # type: ignore[arg-type]
        (lambda: load_transform({"class": "os:system", "fields": {}}), "not a dataclass"),
        (lambda: load_transform({"tensors": []}), "not the values of a saved transform"),
    ],
)
def test_a_transform_that_cannot_be_saved_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
