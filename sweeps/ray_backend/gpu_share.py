"""``gpu: auto``: how large a share of a GPU one trial needs.

A small network leaves most of a GPU idle, so several trials share one: as many as its
memory holds. The memory of a trial is estimated from the network itself, because the machine
that plans the sweep need not have a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from calibration.data import Splits
from calibration.data.mapped import is_mapped
from calibration.learners import trains_network
from calibration.methods import make_method
from calibration.models import build_model
from calibration.training import PREDICTION_BATCH
from sweeps.engine.embedding import stand_in
from sweeps.search.space import extremes
from sweeps.spec import LoadedSpec
from sweeps.spec.schema import Spec

PROCESS_BYTES = 0.8e9
"""A process on a GPU before it trains anything: CUDA's context and the libraries' kernels."""
_COPIES = 8
"""Copies of the parameters: weights, gradient, two moments, these during a step, the best."""
COPIES_PER_STEP = 3
"""Copies of the parameters for every further inner step that is kept for differentiation."""
SAFETY = 1.5
MOST_PER_GPU = 8
"""More on one GPU mostly wait for each other."""
ASSUMED_MEMORY = 16e9
"""The memory of a GPU that does not report it."""
_LABEL_BYTES = 8


def gpu_share(needed: float, memory: float) -> float:
    """The share 1/k of a GPU that holds ``needed`` bytes, with k as large as it may be."""
    fit = int(memory / needed) if needed > 0 else MOST_PER_GPU
    return 1 / min(max(fit, 1), MOST_PER_GPU)


def memory_fraction(share: float, memory: float) -> float:
    """The fraction of a GPU's memory a trial may allocate: its share without the process's part."""
    return max(share - PROCESS_BYTES / memory, share / 4)


def trial_bytes(loaded: LoadedSpec) -> float:
    """The GPU memory that the most demanding trial of a sweep needs, roughly.

    It consists of the rows (of those in a file, only the batches in transit), the parameters and
    an optimiser's copies of them, and the outputs of all layers for one batch, as often as the
    method keeps them: a bilevel method that is differentiated through T inner steps keeps T of
    them. Predictions use larger batches, but keep nothing. The memory of the process itself is not
    included.
    """
    most = 0.0
    for dataset in loaded.datasets.values():
        splits = dataset.split(loaded.spec.protocol, loaded.spec.seed, held_out=True)
        splits = stand_in(loaded.spec.model, splits)
        for row, chosen in loaded.spec.methods.items():
            if not trains_network(chosen.method):
                continue
            most = max(most, _row_bytes(loaded.spec, row, splits, dataset.classes))
    return SAFETY * most


def _row_bytes(spec: Spec, row: str, splits: Splits, classes: int) -> float:
    space = spec.space(row)
    extreme = {
        hyperparameter: extremes(domain)[-1] for hyperparameter, domain in space.searched.items()
    }
    method = make_method(spec.methods[row].method, space.fixed | extreme)
    rows = len(splits.train.labels)
    size = spec.row_training(row).batch_size
    batch = rows if size == "full" else min(int(size), rows)
    one = splits.transform(splits.train.inputs[:2])
    network = build_model(spec.model.name, spec.model.options, tuple(one.shape[1:]), classes)
    all_layers, largest_layer = (size / len(one) for size in _output_bytes(network, one))
    parameters = sum(p.numel() * p.element_size() for p in network.parameters())
    # A step keeps every layer's output, a prediction only the input and output of one layer.
    predicted = min(rows, network.rows_at_once or PREDICTION_BATCH)
    kept = max(batch * method.window * all_layers, predicted * largest_layer)
    parts = (splits.train, splits.validation, splits.meta_validation)
    # Images are kept as stored, a byte for each value, and are prepared batch by batch.
    stored = splits.train.inputs[:2] if splits.train.inputs.dtype == torch.uint8 else one
    each = stored[0].numel() * stored.element_size()
    held = sum(len(part.labels) for part in parts if part is not None)
    there = held
    if is_mapped(splits.train.inputs):  # a batch that is used, and the next one
        there = min(held, 2 * max(batch, PREDICTION_BATCH))
    data = each * there + _LABEL_BYTES * held
    copies = _COPIES + COPIES_PER_STEP * (method.window - 1)
    return float(data + copies * parameters + 2 * kept)


def _output_bytes(network: nn.Module, inputs: Tensor) -> tuple[float, float]:
    """The bytes of all layers' outputs in a forward pass, and of the largest one alone."""
    sizes = [inputs.numel() * inputs.element_size()]

    def add(module: nn.Module, given: object, made: object) -> None:
        if isinstance(made, Tensor):
            sizes.append(made.numel() * made.element_size())

    leaves = [module for module in network.modules() if not list(module.children())]
    handles = [leaf.register_forward_hook(add) for leaf in leaves]
    try:
        with torch.no_grad():
            network.eval()(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return float(sum(sizes)), float(max(sizes))


class GpuShare(NamedTuple):
    """The share of a GPU for each trial or cohort of a sweep, and the members of a cohort."""

    gpu: float
    members: int


def choose_share(loaded: LoadedSpec, gpus: float, memory: Callable[[], float]) -> GpuShare:
    """The share if the spec says ``auto``: 0 if there is no GPU.

    Of a cohort of N, as many train together as one GPU holds, each with its own rows.
    """
    wanted = loaded.spec.cohort if isinstance(loaded.spec.cohort, int) else 1
    if not gpus:
        return GpuShare(0.0, members=wanted)
    each, there = trial_bytes(loaded), memory()
    members = max(1, min(wanted, int((there - PROCESS_BYTES) / each))) if each else wanted
    return GpuShare(gpu_share(PROCESS_BYTES + members * each, there), members)
