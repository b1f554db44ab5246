"""The content of an exported model, made from the store and checked against its record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from calibration.abstention import (
    Accepted,
    accepted,
    accuracy_threshold,
    attainable_accuracy,
    coverage_threshold,
)
from calibration.calibrators import CALIBRATORS, Calibrator
from calibration.data import Dataset, Splits
from calibration.data.columns import MISSING_CODE
from calibration.data.saving import save_transform
from calibration.data.transforms import Standardise, TableTransform, encoded
from calibration.deployment import (
    BACKBONE,
    Classifier,
    Description,
    Inputs,
    Named,
    interpret,
)
from calibration.evaluation import cross_fitted, fitted_calibrator
from calibration.learners import Estimator, learner, make_learner
from calibration.learners.encoding import encoder_for
from calibration.learners.estimator import TRAINING_SETTINGS
from calibration.methods import Method
from calibration.metrics.rare import class_shares
from calibration.models import MODELS, Encoder, backbone_of, encoder_of
from calibration.prior import Prior, deployment_prior
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import splits_of, stored_model
from sweeps.engine.predictions import labelled
from sweeps.errors import UserError
from sweeps.export.bundling import Bundle, bundle
from sweeps.export.checks import check_calibrator_output, check_network
from sweeps.export.choice import Chosen
from sweeps.export.fine_tuned import separated
from sweeps.spec import LoadedSpec
from sweeps.store import Store


@dataclass(frozen=True)
class Wish:
    """The target of the threshold: an accuracy among accepted rows, a coverage, or none."""

    accuracy: float | None = None
    coverage: float | None = None


@dataclass(frozen=True)
class Package:
    """A model to be written, and the content of its card.

    ``on_validation`` and ``on_test`` are the effects of the threshold on the rows it was chosen
    on and on the test rows; ``test_range`` is the lowest and highest confidence of the latter.
    """

    chosen: Chosen
    classifier: Classifier
    model: dict[str, Any]
    code: Bundle
    wish: Wish
    rows: dict[str, int]
    on_validation: Accepted
    on_test: Accepted
    test_range: tuple[float, float]
    train_share: Tensor

    @property
    def description(self) -> Description:
        """The content of ``model.json``."""
        return self.classifier.description


def assemble(
    loaded: LoadedSpec,
    store: Store,
    chosen: Chosen,
    wish: Wish,
    prior: Mapping[str, float] | None = None,
) -> Package:
    """Make a standalone model of the chosen network; nothing is written.

    ``prior`` are the classes' shares in deployment, for which its probabilities are corrected.
    Raises ``UserError`` if that is impossible, if no threshold reaches the target, or if the
    network cannot be saved; ``StoreError`` if it is missing from the store, or if the network or
    the calibrator does not reproduce the record.
    """
    config, record = chosen.trial.config, chosen.record
    dataset = loaded.datasets[chosen.dataset]
    made = make_learner(config.method, config.hyperparameters)
    splits = dataset.split(config.protocol, config.seed, held_out=made.needs_held_out)
    arrays, model = store.predictions(record), stored_model(config, record, store)
    encoder = _encoder(config)
    if encoder is not None and config.model is not None:
        pretrained = backbone_of(config.model.name, config.model.options)
        if pretrained is not None and pretrained.frozen:
            # Raw rows, and the transform of their embeddings.
            splits = replace(splits, transform=splits_of(config, store).transform)
        else:
            row = splits.train.inputs[:1]
            encoder, model, between = separated(config.model, model, encoder, row, dataset.classes)
            splits = replace(splits, transform=between)
    if isinstance(made, Method):
        inputs = made.hyperparameters
        transform = encoded(splits, inputs.numeric_inputs, inputs.input_bins)
        splits = replace(splits, transform=transform)
    validation, test_rows = labelled("validation", arrays), labelled("test", arrays)
    logits, labels = validation.logits, validation.labels
    if validation.weights is not None and wish != Wish():
        raise UserError(
            "--accuracy, --coverage: a threshold counts rows, and those of dataset "
            f"{chosen.dataset!r} count by their weights; leave it out"
        )
    bins = loaded.spec.evaluation.bins
    output = cross_fitted(
        chosen.calibrator,
        logits,
        labels,
        seed=config.seed,
        groups=validation.groups,
        times=validation.times,
        weights=validation.weights,
    )
    check_calibrator_output("validation", output, validation, bins, chosen)
    held_back = interpret(output, logits)
    sure, right = held_back.confidence, held_back.classes == labels
    threshold = _threshold(sure, right, wish)
    calibrator = fitted_calibrator(chosen.calibrator, validation)
    description = _description(loaded.spec.name, chosen, dataset, splits, made, threshold, wish)
    if prior is not None:
        shares = class_shares(labels, dataset.classes, validation.weights)
        corrected = _prior(prior, dataset.class_names, shares, calibrator, wish)
        description = description.model_copy(update={"prior": corrected})
    classifier = Classifier(description, model, calibrator, encoder)
    check_network(classifier, splits, logits, chosen)
    test_labels = test_rows.labels
    output = calibrator(test_rows.logits)
    check_calibrator_output("test", output, test_rows, bins, chosen)
    test = interpret(output, test_rows.logits)
    counts = torch.bincount(splits.train.labels, minlength=dataset.classes)
    return Package(
        chosen,
        classifier,
        model,
        bundle(_modules(chosen, splits, description)),
        wish,
        rows={
            "training": len(splits.train.labels),
            "validation": len(labels),
            "test": len(test_labels),
        },
        on_validation=accepted(sure, right, threshold),
        on_test=accepted(test.confidence, test.classes == test_labels, threshold),
        test_range=(float(test.confidence.min()), float(test.confidence.max())),
        train_share=counts / counts.sum(),
    )


def _encoder(config: TrialConfig) -> Encoder | None:
    if not config.encoder or config.model is None:
        return None
    try:
        return encoder_of(config.model.name, config.model.options)
    except ValueError as error:
        raise UserError(f"model {config.model.name!r}: {error}") from error


def _prior(
    wanted: Mapping[str, float],
    names: Sequence[str],
    shares: Sequence[float],
    calibrator: Calibrator,
    wish: Wish,
) -> Prior:
    if wish != Wish():
        raise UserError(
            "--prior: a threshold by --accuracy or --coverage is chosen on rows with other class "
            "frequencies, and would guarantee nothing in deployment; leave one of them out"
        )
    if calibrator.top_label:
        raise UserError(
            "--prior: the row's calibrator gives only the confidence of the predicted class, but "
            "probabilities of all classes are needed; name another row with --row"
        )
    try:
        return deployment_prior(wanted, names, shares)
    except ValueError as error:
        raise UserError(str(error)) from error


def _threshold(sure: Tensor, right: Tensor, wish: Wish) -> float:
    if wish.coverage is not None:
        return coverage_threshold(sure, wish.coverage)
    if wish.accuracy is None:
        return 0.0
    found = accuracy_threshold(sure, right, wish.accuracy)
    if found is None:
        raise UserError(
            f"--accuracy: {wish.accuracy:g} cannot be guaranteed with 95 % confidence from "
            f"{len(sure)} validation rows; the highest possible is "
            f"{attainable_accuracy(sure, right):g}"
        )
    return found


def _description(
    sweep: str,
    chosen: Chosen,
    dataset: Dataset,
    splits: Splits,
    made: Method | Estimator,
    threshold: float,
    wish: Wish,
) -> Description:
    config = chosen.trial.config
    encode = splits.transform
    if isinstance(made, Estimator):
        encode, _ = encoder_for(made, splits, dataset.columns)
    try:
        transform = save_transform(encode)
        inputs = _inputs(dataset, splits)
    except ValueError as error:
        raise UserError(f"{chosen.dataset}: {error}") from error
    written = config.model_dump(mode="json")
    named = Named(name=config.method, options=written["hyperparameters"])
    return Description(
        class_names=dataset.class_names,
        inputs=inputs,
        transform=transform,
        network=_network(config),
        network_input=_network_input(config, splits),
        embeds=bool(config.encoder),
        category_embedding=_embedding(made),
        estimator=named if isinstance(made, Estimator) else None,
        method=named if _learns_map(made) else None,
        mixed_precision=config.training.mixed_precision,
        threshold=threshold,
        about={
            "sweep": sweep,
            "dataset": chosen.dataset,
            "row": chosen.label,
            "key": chosen.trial.key,
            "seed": config.seed,
            "fingerprint": config.fingerprint,
            "method": config.method,
            "hyperparameters": written["hyperparameters"],
            "calibrator": chosen.calibrator,
            "training": _concerning(config),
            "protocol": written["protocol"],
            "threshold_for": {k: v for k, v in vars(wish).items() if v is not None},
            "environment": chosen.record.environment,
            "exported": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
    )


def _network(config: TrialConfig) -> Named | None:
    if config.model is None:
        return None
    options = dict(config.model.options)
    if config.encoder:
        # The path of the weights is useless elsewhere, and private. Nothing is trained any more: a
        # network that was fine-tuned is a frozen one with its own weights.
        options |= {"weights": BACKBONE, "frozen": True}
    return Named(name=config.model.name, options=options)


def _network_input(config: TrialConfig, splits: Splits) -> tuple[int, ...]:
    if config.encoder and isinstance(splits.transform, Standardise):
        return tuple(splits.transform.mean.shape)
    return tuple(splits.transform(splits.train.inputs[:1]).shape[1:])


def _embedding(made: Method | Estimator) -> int:
    return made.hyperparameters.category_embedding if isinstance(made, Method) else 0


def _learns_map(made: Method | Estimator) -> bool:
    return isinstance(made, Method) and type(made).map_logits is not Method.map_logits


def _concerning(config: TrialConfig) -> dict[str, Any]:
    """The training settings that concern the learner."""
    concerns = None if config.model is not None else set(TRAINING_SETTINGS)
    return config.training.model_dump(mode="json", include=concerns)


def _inputs(dataset: Dataset, splits: Splits) -> Inputs:
    raw = splits.train.inputs
    dtype = str(raw.dtype).removeprefix("torch.")
    if dtype not in ("uint8", "float32", "float64"):
        raise ValueError(f"raw inputs must be uint8, float32 or float64, found {dtype}")
    # A custom encoding is part of the user's dataset, which is not exported.
    columns = dataset.columns if type(dataset).encode is Dataset.encode else ()
    made_up = [column.name for column in columns] == [f"x{i}" for i in range(len(columns))]
    return Inputs.model_validate(
        {
            "shape": tuple(raw.shape[1:]),
            "dtype": dtype,
            "columns": columns,
            "optional": _seen_missing(splits, columns),
            "by_position": made_up,
        }
    )


def _seen_missing(splits: Splits, columns: tuple[Any, ...]) -> tuple[str, ...]:
    """The columns with missing values in training: the network can handle these."""
    transform = splits.transform
    if not isinstance(transform, TableTransform):
        return ()
    places = [*transform.indicators]
    places += [place for place, codes in transform.categories if MISSING_CODE in codes]
    return tuple(columns[place].name for place in sorted(places))


def _modules(chosen: Chosen, splits: Splits, description: Description) -> list[str]:
    """The modules of everything that is looked up by name when the model is loaded."""
    config = chosen.trial.config
    things: list[Any] = [CALIBRATORS[chosen.calibrator], type(splits.transform)]
    needed: list[str] = []
    if config.model is not None:
        things.append(MODELS[config.model.name])
        pretrained = backbone_of(config.model.name, config.model.options)
        needed += () if pretrained is None else pretrained.imports
    kind = learner(config.method)
    if issubclass(kind, Estimator):
        return [*(thing.__module__ for thing in (*things, kind)), *kind.imports()]
    if description.method is not None:
        things.append(kind)
    return [*(thing.__module__ for thing in things), *needed]
