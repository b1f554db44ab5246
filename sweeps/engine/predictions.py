"""How a trial's predictions are stored, and read for its evaluation."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from calibration.data import Part
from calibration.evaluation import LabelledLogits


def predictions_of(part: str, logits: Tensor, rows: Part) -> dict[str, Tensor]:
    """The arrays of a part, under their names in the store.

    Groups, times and weights go with the rows: calibrators and intervals need them.
    """
    found = {
        "logits": logits,
        "labels": rows.labels,
        "groups": rows.groups,
        "times": rows.times,
        "weights": rows.weights,
    }
    return {f"{part}_{name}": values for name, values in found.items() if values is not None}


def labelled(part: str, arrays: Mapping[str, Tensor]) -> LabelledLogits:
    """The stored predictions of a part."""
    return LabelledLogits(
        arrays[f"{part}_logits"],
        arrays[f"{part}_labels"],
        arrays.get(f"{part}_posterior"),
        arrays.get(f"{part}_groups"),
        arrays.get(f"{part}_times"),
        arrays.get(f"{part}_weights"),
    )
