"""Whether a spec's pretrained network can be used: its weights, its data, and what is trained."""

from __future__ import annotations

from calibration.data import Dataset, FixedDataset
from calibration.learners import trains_network
from calibration.methods import BackboneHyperparameters
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
    """Raise ``ProblemError`` unless the spec's pretrained network, if any, can be used."""
    chosen = chosen_backbone(spec)
    _check_fine_tuning(spec, chosen)
    if chosen is None:
        return
    if chosen.frozen:
        _check_unaugmented(spec)
    elif not chosen.tunable:
        raise ProblemError(
            (*_MODEL, "frozen"),
            f"found false; only heads can be trained on {spec.model.name.partition(':')[0]}: "
            "networks; leave it out",
        )
    named(_MODEL, lambda: encoder_of(spec.model.name, spec.model.options))


def _check_fine_tuning(spec: Spec, chosen: Backbone | None) -> None:
    """Raise ``ProblemError`` for settings of a network that is not, or never, fine-tuned."""
    for row, written in spec.methods.items():
        for name in BackboneHyperparameters.model_fields:
            if not any(name in point for point in (written.hyperparameters, *written.grid)):
                continue
            if chosen is None or chosen.frozen:
                raise ProblemError(
                    ("methods", row, name),
                    "there is no pretrained network to train; leave it out, or write frozen: false "
                    "in 'model' beside timm:NAME, torchvision:NAME or hf:NAME",
                )
        frozen = written.hyperparameters.get("freeze_epochs")
        if isinstance(frozen, int) and frozen >= (epochs := spec.row_training(row).epochs):
            raise ProblemError(
                ("methods", row, "freeze_epochs"),
                f"found {frozen}, but there are {epochs} epochs, so the network would never be "
                "trained; write fewer, or frozen: true in 'model', which is much faster",
            )


def _check_unaugmented(spec: Spec) -> None:
    plain = TrainingConfig.model_fields["augmentation"].default
    for row, written in spec.methods.items():
        if trains_network(written.method) and spec.row_training(row).augmentation != plain:
            own: Location = ("methods", row) if "augmentation" in written.training else ()
            raise ProblemError(
                (*own, "training", "augmentation"),
                "a frozen backbone sees every row once, before any training: there is nothing to "
                f"augment; write {plain!r}, or frozen: false in 'model'",
            )


def network_shape(
    spec: Spec, chosen: Backbone, dataset: Dataset, location: Location
) -> tuple[int, ...]:
    """The shape of the inputs in training: embeddings, or inputs of the whole network.

    Raises ``ProblemError`` if the dataset's rows cannot be inputs of the network.
    """
    if dataset.kind != chosen.takes or not isinstance(dataset, FixedDataset):
        raise ProblemError(
            location,
            f"{spec.model.name} needs a fixed set of {_NOUNS[chosen.takes]}, but {dataset.name!r} "
            f"has {_rows_of(dataset)}; choose another dataset or model",
        )
    encoder, first = encoder_of(spec.model.name, spec.model.options), dataset.pool.inputs
    if not chosen.frozen:
        prepared = named(_MODEL, lambda: encoder.prepared(first[:_TRIED_ROWS]))
        return tuple(prepared.shape[1:])
    if dataset.train_transform is not None:
        raise ProblemError(
            location,
            f"{dataset.name!r} has a train_transform, but a frozen backbone sees every row once, "
            "before any training; leave it out",
        )
    embedded = named(
        _MODEL, lambda: encoder.embed(first[:_TRIED_ROWS], batch_size=chosen.batch_size)
    )
    return tuple(embedded.shape[1:])


def _rows_of(dataset: Dataset) -> str:
    drawn = "" if isinstance(dataset, FixedDataset) else " that every seed draws anew"
    return f"{_NOUNS[dataset.kind]}{drawn}"


def check_texts(spec: Spec, dataset: Dataset, location: Location) -> None:
    """Raise ``ProblemError`` if a row or the model cannot read a dataset's texts."""
    if dataset.kind != "text":
        return
    for row, written in spec.methods.items():
        if not trains_network(written.method):
            raise ProblemError(
                ("methods", row),
                f"{written.method} reads numbers, but {dataset.name!r} has texts; remove the row",
            )
    if chosen_backbone(spec) is None:
        raise ProblemError(
            location, f"{dataset.name!r} has texts, which need a model hf:NAME; write one"
        )
