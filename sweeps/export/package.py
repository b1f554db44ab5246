"""All that an exported model consists of, made from the store and checked against its record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from calibration import calibrators
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
from calibration.data.transforms import TableTransform, encoded
from calibration.deployment import Classifier, Description, Inputs, Named, interpret
from calibration.evaluation import cross_fitted
from calibration.learners import Estimator, learner, make_learner
from calibration.learners.encoding import encoder_for
from calibration.learners.estimator import TRAINING_SETTINGS
from calibration.methods import Method
from calibration.metrics.rare import class_shares
from calibration.models import MODELS
from calibration.prior import Prior, deployment_prior
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import stored_model
from sweeps.errors import UserError
from sweeps.export.bundling import Bundle, bundle
from sweeps.export.checks import check_calibrator_output, check_network
from sweeps.export.choice import Chosen
from sweeps.spec import LoadedSpec
from sweeps.store import Store


@dataclass(frozen=True)
class Wish:
    """What the threshold is to reach: an accuracy among accepted rows, a coverage, or none."""

    accuracy: float | None = None
    coverage: float | None = None


@dataclass(frozen=True)
class Package:
    """A model to be written, and what its card says of it.

    ``on_validation`` and ``on_test`` are what the threshold does to the rows it was chosen on
    and to those it was not; ``test_range`` the lowest and the highest confidence among the
    latter.
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
        """What becomes ``model.json``."""
        return self.classifier.description


def assemble(
    loaded: LoadedSpec,
    store: Store,
    chosen: Chosen,
    wish: Wish,
    prior: Mapping[str, float] | None = None,
) -> Package:
    """Make the chosen network a model of its own; nothing is written.

    ``prior`` are shares of classes where it is to be used, for which its probabilities are then
    corrected. Raises ``UserError`` if that cannot be, if no threshold reaches what is wished for
    or the network cannot be saved, ``StoreError`` if the store has lost it, or if the network or
    the calibrator do not do what the record says.
    """
    config, record = chosen.trial.config, chosen.record
    dataset = loaded.datasets[chosen.dataset]
    made = make_learner(config.method, config.hyperparameters)
    splits = dataset.split(config.protocol, config.seed, held_out=made.needs_held_out)
    if isinstance(made, Method):
        inputs = made.hyperparameters
        transform = encoded(splits, inputs.numeric_inputs, inputs.input_bins)
        splits = replace(splits, transform=transform)
    arrays, model = store.predictions(record), stored_model(config, record, store)
    logits, labels = arrays["validation_logits"], arrays["validation_labels"]
    bins = loaded.spec.evaluation.bins
    output = cross_fitted(chosen.calibrator, logits, labels, seed=config.seed)
    check_calibrator_output("validation", output, logits, labels, bins, chosen)
    held_back = interpret(output, logits)
    sure, right = held_back.confidence, held_back.classes == labels
    threshold = _threshold(sure, right, wish)
    calibrator = calibrators.fit(chosen.calibrator, logits, labels)
    description = _description(loaded.spec.name, chosen, dataset, splits, made, threshold, wish)
    if prior is not None:
        corrected = _prior(prior, dataset.class_names, labels, calibrator, wish)
        description = description.model_copy(update={"prior": corrected})
    classifier = Classifier(description, model, calibrator)
    check_network(classifier, splits, logits, chosen)
    test_logits, test_labels = arrays["test_logits"], arrays["test_labels"]
    output = calibrator(test_logits)
    check_calibrator_output("test", output, test_logits, test_labels, bins, chosen)
    test = interpret(output, test_logits)
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


def _prior(
    wanted: Mapping[str, float],
    names: Sequence[str],
    labels: Tensor,
    calibrator: Calibrator,
    wish: Wish,
) -> Prior:
    if wish != Wish():
        raise UserError(
            "--prior: a threshold by --accuracy or --coverage is chosen on rows whose classes have "
            "other frequencies, and would promise nothing where it is used; leave one of them out"
        )
    if calibrator.top_label:
        raise UserError(
            "--prior: the row's calibrator gives the confidence of the predicted class only, and "
            "probabilities of all classes are needed; name another row with --row"
        )
    try:
        return deployment_prior(wanted, names, class_shares(labels, len(names)))
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
            f"--accuracy: {wish.accuracy:g} cannot be promised with 95 % confidence from "
            f"{len(sure)} validation rows; the highest that can is "
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
        network=Named.model_validate(written["model"]) if config.model else None,
        network_input=tuple(splits.transform(splits.train.inputs[:1]).shape[1:]),
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
    # Whoever has an encoding of their own has it in their dataset, which stays behind.
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
    """The columns that had values missing in training: the network knows what to make of it."""
    transform = splits.transform
    if not isinstance(transform, TableTransform):
        return ()
    places = [*transform.indicators]
    places += [place for place, codes in transform.categories if MISSING_CODE in codes]
    return tuple(columns[place].name for place in sorted(places))


def _modules(chosen: Chosen, splits: Splits, description: Description) -> list[str]:
    """The modules of all that is looked up by name when the model is loaded."""
    config = chosen.trial.config
    things: list[Any] = [CALIBRATORS[chosen.calibrator], type(splits.transform)]
    if config.model is not None:
        things.append(MODELS[config.model.name])
    kind = learner(config.method)
    if issubclass(kind, Estimator):
        return [*(thing.__module__ for thing in (*things, kind)), *kind.imports()]
    if description.method is not None:
        things.append(kind)
    return [thing.__module__ for thing in things]
