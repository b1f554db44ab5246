"""Whether a spec's pretrained network can be used: its weights, its data, and what is trained."""

from __future__ import annotations

from calibration.data import Dataset, FixedDataset
from calibration.learners import trains_network
from calibration.models import Backbone, backbone_of, encoder_of
from calibration.training_config import TrainingConfig
from sweeps.spec.reading import Location, ProblemError
from sweeps.spec.row_checks import named
from sweeps.spec.schema import Spec

_TRIED_ROWS = 2
_MODEL: Location = ("model",)
_NOUNS = {"image": "images", "text": "texts", "table": "a table", "points": "points"}


def chosen_backbone(spec: Spec) -> Backbone | None:
    """The spec's pretrained network, if it has one and trains networks at all.

    Raises ``ProblemError`` for wrong options.
    """
    if not any(trains_network(row.method) for row in spec.methods.values()):
        return None
    found: Backbone | None = named(_MODEL, lambda: backbone_of(spec.model.name, spec.model.options))
    return found


def encoder_digest(spec: Spec) -> str:
    """The digest of the spec's pretrained network, or an empty text. Raises ``ProblemError``."""
    if chosen_backbone(spec) is None:
        return ""
    digest: str = named(_MODEL, lambda: encoder_of(spec.model.name, spec.model.options).digest)
    return digest


def check_backbone(spec: Spec) -> None:
    """Raise ``ProblemError`` unless the spec's pretrained network is there, and stays frozen."""
    chosen = chosen_backbone(spec)
    if chosen is None:
        return
    if not chosen.frozen:
        raise ProblemError(
            (*_MODEL, "frozen"),
            "found false; the weights of a pretrained network stay as they are: leave it out, and "
            "train a head, or train a network of 'calsweep models' from scratch",
        )
    plain = TrainingConfig.model_fields["augmentation"].default
    for row, written in spec.methods.items():
        if trains_network(written.method) and spec.row_training(row).augmentation != plain:
            own: Location = ("methods", row) if "augmentation" in written.training else ()
            raise ProblemError(
                (*own, "training", "augmentation"),
                "a frozen backbone sees every row once, before any training: there is nothing to "
                f"augment; write {plain!r}",
            )
    named(_MODEL, lambda: encoder_of(spec.model.name, spec.model.options))


def embedded_shape(
    spec: Spec, chosen: Backbone, dataset: Dataset, location: Location
) -> tuple[int, ...]:
    """The shape of an embedding of the dataset's rows. Raises ``ProblemError`` if it has none."""
    if dataset.kind != chosen.takes or not isinstance(dataset, FixedDataset):
        raise ProblemError(
            location,
            f"{spec.model.name} embeds {_NOUNS[chosen.takes]} that are given once and for all, and "
            f"{dataset.name!r} has {_NOUNS[dataset.kind]}; choose another dataset or model",
        )
    if dataset.train_transform is not None:
        raise ProblemError(
            location,
            f"{dataset.name!r} has a train_transform, and a frozen backbone sees every row once, "
            "before any training; leave it out",
        )
    encoder, first = encoder_of(spec.model.name, spec.model.options), dataset.pool.inputs
    embedded = named(
        _MODEL, lambda: encoder.embed(first[:_TRIED_ROWS], batch_size=chosen.batch_size)
    )
    return tuple(embedded.shape[1:])


def check_texts(spec: Spec, dataset: Dataset, location: Location) -> None:
    """Raise ``ProblemError`` where texts would meet what reads numbers."""
    if dataset.kind != "text":
        return
    for row, written in spec.methods.items():
        if not trains_network(written.method):
            raise ProblemError(
                ("methods", row),
                f"{written.method} reads numbers, and {dataset.name!r} has texts; remove the row",
            )
    if chosen_backbone(spec) is None:
        raise ProblemError(
            location, f"{dataset.name!r} has texts, which need a model hf:NAME; write one"
        )
