"""Checks that a spec's names and values refer to something that exists and fits together.

Every problem is a ``ProblemError`` with the location of its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from calibration import calibrators
from calibration.data import Dataset, FixedDataset, load_dataset
from calibration.evaluation import large_metrics
from calibration.learners import Estimator, check_rows_fit, learner, trains_network
from calibration.methods import InputHyperparameters
from calibration.metrics import METRICS
from calibration.models import MODELS, build_model
from sweeps.search import SAMPLERS, Sampler
from sweeps.spec.backbone_checks import (
    check_backbone,
    check_texts,
    chosen_backbone,
    network_shape,
)
from sweeps.spec.reading import Location, ProblemError, shortened
from sweeps.spec.row_checks import check_rows, named
from sweeps.spec.schema import PublishedTable, Resources, Spec
from sweeps.spec.tracking_uri import tracking_problem
from sweeps.store import RESERVED_NAMES

LARGEST_MODEL = 1_000_000_000
LARGEST_OPTION = 65_536


def table_metrics() -> list[str]:
    """The metrics in which a published table can be compared."""
    large = [f"large_{name}" for name in large_metrics()]
    return sorted({*METRICS.names(), "floor", *large})


def check_words(spec: Spec) -> None:
    """Check what can be checked without the data. Raises ``ProblemError``."""
    if spec.name in RESERVED_NAMES:
        raise ProblemError(
            ("name",), f"found {spec.name!r}, which the store uses itself; choose another"
        )
    _check_sampler(spec)
    check_rows(spec)
    _check_search(spec)
    _check_scheduler(spec)
    _check_resources(spec.resources)
    _check_tracking(spec)
    _check_calibrators(spec)
    if spec.ensembles and spec.confirm_seeds < 2:
        raise ProblemError(
            ("ensembles",), "an ensemble has at least 2 members; raise confirm_seeds or remove it"
        )
    _check_equivalence(spec)
    if spec.table is not None:
        _check_table(spec, spec.table)


def check_meaning(spec: Spec) -> dict[str, Dataset]:
    """The datasets of a valid spec, by name. Raises ``ProblemError`` for an invalid one."""
    check_words(spec)
    check_backbone(spec)
    datasets: dict[str, Dataset] = {}
    for index, choice in enumerate(spec.datasets):
        location: Location = ("datasets", index)
        dataset = named(location, lambda c=choice: load_dataset(c.name, c.options))
        if dataset.name in datasets:
            raise ProblemError(location, f"a second dataset is called {dataset.name!r}; keep one")
        datasets[dataset.name] = dataset
        if spec.ensembles and dataset.independent_draws:
            raise ProblemError(
                ("ensembles",),
                f"every seed of {dataset.name!r} draws its own test rows, and an ensemble needs "
                "common ones; remove the dataset or 'ensembles'",
            )
        check_texts(spec, dataset, location)
        _check_memory(spec, dataset)
        _check_augmentation(spec, dataset)
        _check_inputs(spec, dataset)
        _check_model(spec, dataset, location)
        _check_groups(spec, dataset, location)
        _check_weights(spec, dataset, location)
    return datasets


def compared_metrics() -> list[str]:
    """The metrics of which rows are compared: those that may have a region of equivalence."""
    return [name for name in METRICS.names() if METRICS[name].direction != "none"]


def _check_equivalence(spec: Spec) -> None:
    for name in spec.equivalence:
        if name not in compared_metrics():
            known = ", ".join(compared_metrics())
            raise ProblemError(
                ("equivalence", name), f"found {name!r}, which is not a metric; there are: {known}"
            )


def _check_sampler(spec: Spec) -> None:
    location: Location = ("search", "sampler")
    kind = named(location, lambda: SAMPLERS[spec.search.sampler])
    if not (isinstance(kind, type) and issubclass(kind, Sampler)):
        raise ProblemError(location, f"{spec.search.sampler!r} is not a subclass of Sampler")


def _check_search(spec: Spec) -> None:
    search = spec.search
    if search.is_grid and search.time is not None:
        raise ProblemError(
            ("search", "time"),
            f"found {search.time:g} s with sampler grid, which ends with its last point; leave "
            "one of them out",
        )
    most = SAMPLERS[search.sampler].most_trials
    if most is not None and (search.limit or 0) > most:
        raise ProblemError(
            ("search", "trials"),
            f"found {search.limit}; the {search.sampler} sampler becomes slow beyond {most} "
            "trials: lower it, or use tpe",
        )
    measured: list[str] = []
    for index, objective in enumerate(search.objective):
        location: Location = ("search", "objective", index)
        if objective.metric in measured:
            raise ProblemError(location, f"{objective.metric!r} is listed twice; keep one")
        measured.append(objective.metric)
        better = METRICS[objective.metric].direction
        if objective.direction != better:
            raise ProblemError(
                (*location, "direction"),
                f"found {objective.direction!r} for {objective.metric!r}; write {better!r}",
            )
    for row in spec.methods:
        if "refinement" in measured and spec.row_training(row).stop_on != "refinement":
            raise ProblemError(
                ("search", "objective"), "'refinement' needs training.stop_on: refinement as well"
            )


def _check_scheduler(spec: Spec) -> None:
    if spec.scheduler.name == "none":
        return
    if len(spec.search.objective) > 1:
        raise ProblemError(
            ("scheduler",),
            f"{spec.scheduler.name!r} needs one objective and search.objective has "
            f"{len(spec.search.objective)}; write one, or scheduler: none",
        )
    grace = spec.scheduler.grace
    for row in spec.methods:
        epochs = spec.row_training(row).epochs
        if grace is not None and grace >= epochs:
            raise ProblemError(
                ("scheduler", "grace"),
                f"found {grace}, but row {row!r} trains for {epochs} epochs, so nothing would be "
                "saved; write less",
            )


def _check_resources(resources: Resources) -> None:
    gpu = resources.gpu
    if not gpu and resources.device == "cuda":
        raise ProblemError(
            ("resources", "device"),
            "found 'cuda', and gpu is 0; write a share of one GPU as gpu, or leave device out",
        )
    if gpu == "auto":
        return
    if gpu > 1:
        raise ProblemError(
            ("resources", "gpu"),
            f"found {gpu:g}; a trial trains on one device, so the others would be idle: write at "
            "most 1, and as many trials as there are GPUs run at once",
        )
    if 0 < gpu < 0.01:
        raise ProblemError(
            ("resources", "gpu"), f"found {gpu:g}; write a share of one GPU, from 0.01 to 1"
        )


def _check_tracking(spec: Spec) -> None:
    uri, experiment = spec.tracking.uri, spec.tracking.experiment
    problem = None if uri is None else tracking_problem(uri)
    if problem is not None:
        raise ProblemError(("tracking", "uri"), problem)
    if experiment is not None and (
        not experiment.isprintable()
        or not any(c.isalnum() for c in experiment)
        or len(experiment.encode()) > 250
    ):
        raise ProblemError(
            ("tracking", "experiment"),
            f"found {shortened(experiment)}; a name has letters or digits, at most 250 bytes",
        )


def _check_calibrators(spec: Spec) -> None:
    chosen = spec.calibrators if isinstance(spec.calibrators, list) else []
    for index, name in enumerate(chosen):
        location: Location = ("calibrators", index)
        if name in chosen[:index]:
            raise ProblemError(location, f"{shortened(name)} is listed twice; keep one")
        kind = named(location, lambda name=name: calibrators.CALIBRATORS[name])
        if not (isinstance(kind, type) and issubclass(kind, calibrators.Calibrator)):
            raise ProblemError(location, f"{name!r} is not a subclass of Calibrator")


def _check_table(spec: Spec, table: PublishedTable) -> None:
    for index, metric in enumerate(table.metrics):
        if metric not in table_metrics():
            raise ProblemError(
                ("table", "metrics", index),
                f"unknown metric {shortened(metric)}; known: {', '.join(table_metrics())}",
            )
    for row, ours in table.rows.items():
        label, _, chosen = ours.partition(" + ")
        is_there = label in spec.methods and (chosen or "identity") in spec.calibrator_names
        if ours != "oracle" and not is_there:
            raise ProblemError(
                ("table", "rows", row),
                f"found {shortened(ours)}; write a row of 'methods', alone or as "
                "'row + calibrator' with "
                "a calibrator of 'calibrators', or 'oracle'",
            )
    if "large_ece" in table.metrics and not spec.large_test:
        raise ProblemError(("large_test",), "the table's 'large_ece' needs it; write e.g. 20000")
    for dataset, rows in table.published.items():
        for row, values in rows.items():
            known_here = table.metrics if row in table.rows else list(table.rows)
            for name in values if row in table.rows else [row]:
                if name not in known_here:
                    raise ProblemError(
                        ("table", "published", dataset, row),
                        f"{shortened(name)} is not in the table; there are {', '.join(known_here)}",
                    )
    for dataset, rows in table.quoted.items():
        for row, values in rows.items():
            if row in table.rows:
                raise ProblemError(
                    ("table", "quoted", dataset, row),
                    f"{shortened(row)} is a row of the table; write its numbers under 'published'",
                )
            for name in values:
                if name not in table.metrics:
                    raise ProblemError(
                        ("table", "quoted", dataset, row),
                        f"{shortened(name)} is not in the table; there are "
                        f"{', '.join(table.metrics)}",
                    )


def _check_augmentation(spec: Spec, dataset: Dataset) -> None:
    for row, written in spec.methods.items():
        if dataset.kind != "image" and spec.row_training(row).augmentation != "none":
            own: Location = ("methods", row) if "augmentation" in written.training else ()
            raise ProblemError(
                (*own, "training", "augmentation"), f"{dataset.name!r} has no images; write 'none'"
            )


def _check_weights(spec: Spec, dataset: Dataset, location: Location) -> None:
    """Raise if a learner does not support weights, or if a part has no weight with some seed."""
    if not dataset.weighted:
        return
    for row, written in spec.methods.items():
        kind = learner(written.method)
        if issubclass(kind, Estimator) and not kind.weighted:
            raise ProblemError(
                ("methods", row),
                f"{written.method!r} does not support row weights, but dataset {dataset.name!r} "
                "has them; remove the row, or the dataset's 'weight'",
            )
    _try_splits(spec, dataset, location)


def _check_groups(spec: Spec, dataset: Dataset, location: Location) -> None:
    """A few groups may fit the parts with one seed and not with another: try the sweep's seeds."""
    if dataset.test_groups is not None:
        _try_splits(spec, dataset, location)


def _try_splits(spec: Spec, dataset: Dataset, location: Location) -> None:
    confirmed = (spec.confirm_seed(repeat) for repeat in range(spec.confirm_seeds))
    for seed in (spec.seed, *confirmed):
        for held_out in (False, True):
            named(
                location,
                lambda s=seed, h=held_out: dataset.split(spec.protocol, s, held_out=h),
            )


def _check_memory(spec: Spec, dataset: Dataset) -> None:
    """Networks may read rows from the disk; estimators need them in memory."""
    for row, written in spec.methods.items():
        if isinstance(dataset, FixedDataset) and not trains_network(written.method):
            named(("methods", row), lambda rows=dataset.pool.inputs: check_rows_fit(rows))


def _check_inputs(spec: Spec, dataset: Dataset) -> None:
    if dataset.columns and chosen_backbone(spec) is None:
        return
    for row, written in spec.methods.items():
        for name in InputHyperparameters.model_fields:
            if any(name in point for point in (written.hyperparameters, *written.grid)):
                raise ProblemError(
                    ("methods", row, name),
                    f"dataset {dataset.name!r} has no columns to encode; leave {name!r} out",
                )


def _check_model(spec: Spec, dataset: Dataset, location: Location) -> None:
    splits = named(location, lambda: dataset.split(spec.protocol, spec.seed, held_out=True))
    if spec.protocol.choice is not None and splits.apart is None:
        raise ProblemError(
            ("protocol",),
            f"dataset {dataset.name!r} sets no rows apart for 'choice'; its split must fill "
            "'apart', or use a protocol without 'choice'",
        )
    if not any(trains_network(row.method) for row in spec.methods.values()):
        return
    chosen, pretrained = spec.model, chosen_backbone(spec)
    if pretrained is None:
        shape = tuple(splits.transform(splits.train.inputs[:1]).shape[1:])
    else:
        shape = network_shape(spec, pretrained, dataset, location)

    def build() -> int:
        model = build_model(chosen.name, chosen.options, shape, dataset.classes)
        return sum(parameter.numel() for parameter in model.parameters())

    if chosen.name not in MODELS:  # a user's own may not be built without memory
        named(("model",), build)
        return
    for number in _whole_numbers(chosen.options):
        if number > LARGEST_OPTION:
            raise ProblemError(("model",), f"found {number}; at most {LARGEST_OPTION} is possible")
    with torch.device("meta"):
        size = named(("model",), build)
    if size > LARGEST_MODEL:
        raise ProblemError(
            ("model",), f"it would have {size} parameters; at most {LARGEST_MODEL} are possible"
        )


def _whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers(inner)
    elif isinstance(value, int):
        yield value
