"""The meaning of a spec's fields: one source for the JSON Schema and for ``calsweep check``.

A field's own description comes first. The library's settings have none: those of training,
of protocols and of all methods are described here, and any other hyperparameter or option by the
docstring of the class that declares it.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel

from calibration.data import Protocol
from calibration.methods import MethodHyperparameters
from calibration.training_config import TrainingConfig


class Note(NamedTuple):
    """The meaning and the unit of a field; the unit is empty if it has none."""

    text: str
    unit: str = ""


_SHARE = "share (of what is not test data), or rows"

_LIBRARY: dict[type[BaseModel], dict[str, Note]] = {
    TrainingConfig: {
        "epochs": Note("how long every network is trained at most", "epochs"),
        "batch_size": Note("how many rows a step takes, or full", "rows"),
        "optimiser": Note("of the network's own parameters; a row may search for one"),
        "momentum": Note("of the optimisers sgd and nesterov"),
        "clip_norm": Note("longer gradients are shortened to this norm; none: as they are"),
        "ema_decay": Note(
            "validation and predictions use an exponential moving average of the weights, of "
            "which a step keeps this share; none: the weights themselves"
        ),
        "warmup_epochs": Note("how long the learning rate rises linearly at first", "epochs"),
        "schedule": Note("how the learning rate falls"),
        "milestones": Note("where the schedule step lowers the rate", "shares of all epochs"),
        "decay": Note("the factor by which the schedule step multiplies the learning rate"),
        "augmentation": Note("random changes to training images; a list: in this order"),
        "stop_on": Note("the best epoch by this validation metric is kept; none: the last epoch"),
        "stop_ties": Note(
            "of epochs that are equally good: the one of the lowest NLL, or the latest"
        ),
        "patience": Note("training ends after this long without a better epoch", "epochs"),
        "evaluate_every": Note("how often the network is measured on validation data", "epochs"),
        "mixed_precision": Note("train in bfloat16 where the device can"),
        "threads": Note("of every training; resources.cpu must cover them", "CPU threads"),
        "kernels": Note(
            "of convolutions on a GPU; deterministic: sums in a fixed order; fastest: tried out, "
            "and not always the same; neither promises equal bits on GPUs"
        ),
        "channels_last": Note(
            "how images lie in memory: faster on GPUs with tensor cores, other last digits"
        ),
        "reliability_snapshots": Note(
            "validation reliability diagrams kept along a confirmed training", "diagrams"
        ),
    },
    MethodHyperparameters: {
        "lr": Note("the learning rate of the network's optimiser, before its schedule"),
        "weight_decay": Note(
            "this multiple of the weights is added to their gradient; adamw shrinks them by it"
        ),
        "optimiser": Note("searched only if listed here; otherwise training.optimiser is used"),
    },
    Protocol: {
        "name": Note("the name of the way in which rows are divided"),
        "validation": Note("for choosing hyperparameters and fitting calibrators", _SHARE),
        "meta_validation": Note("for methods that learn on held-out data", _SHARE),
        "drawn_validation": Note("validation rows of datasets that are drawn afresh", _SHARE),
        "share_validation": Note(
            "validation data serves as held-out data too, to repeat published numbers"
        ),
        "choice": Note(
            "validation rows that only calibrators and the choice of the winner see",
            "share (of the validation rows), or rows",
        ),
        "same_training_rows": Note(
            "held-out data is set aside for every row, even if its method does not use it"
        ),
    },
}


def note(model: type[BaseModel], name: str) -> Note:
    """The meaning and the unit of a field of ``model``."""
    field = model.model_fields[name]
    if field.description:
        extra = field.json_schema_extra
        unit = extra.get("unit", "") if isinstance(extra, dict) else ""
        return Note(field.description, str(unit))
    return library_note(model, name) or Note(plain(declaring(model, name).__doc__))


def library_note(model: type[BaseModel], name: str) -> Note | None:
    """What is said above of a field of the library, if anything is."""
    return _LIBRARY.get(declaring(model, name), {}).get(name)


def declaring(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The class that declares a field last: ``model`` itself or one it inherits from."""
    owners = (c for c in model.__mro__ if name in vars(c).get("__annotations__", {}))
    owner: type[BaseModel] = next(owners)
    return owner


def plain(docstring: str | None) -> str:
    """A docstring as running text."""
    return " ".join((docstring or "").replace("``", "").split())
