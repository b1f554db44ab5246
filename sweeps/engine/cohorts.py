"""Which trials may be trained together in one process, and how many.

A cohort (``calibration/cohort.py``) changes no number, so how trials are grouped is part of no
key: ``cohort`` in a spec decides only which trials share a process.
"""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibration.cohort_times import gain
from calibration.learners import learner
from calibration.memory import available_memory
from calibration.methods import Method, make_method
from calibration.models import FunctionalModel, Network, build_model
from calibration.seeds import seeded
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.embedding import stand_in
from sweeps.engine.identity import TrialConfig, determining
from sweeps.spec import LoadedSpec

Shape = str
AUTO_MOST = 16
"""More members gain little, and a process that dies loses the last seconds of all of them."""
WORTH_A_TRY = 0.9
"""Share of the time one by one: a cohort that is expected to take more is not even tried."""
MEMORY_SHARE = 0.25
"""Share of the available memory for the rows and networks of all members."""
STATES = 8
"""Copies of a network's parameters: weights, gradient, two moments, the same stacked, the best."""


class Cohorts:
    """The grouping rule of one sweep."""

    def __init__(self, loaded: LoadedSpec) -> None:
        self.loaded = loaded
        self.spec = loaded.spec
        self.limit = 10**9
        """The most that may train together, whatever the spec says; set for trials on a GPU."""
        self._shapes: dict[str, Shape | None] = {}
        self._demands: dict[tuple[str, str], NetworkDemand | None] = {}
        self._slower: set[Shape] = set()

    def shape(self, trial: PlannedTrial) -> Shape | None:
        """What trials that train together have in common; None for one that trains alone.

        That is everything that determines the result except seeds and real-valued
        hyperparameters. The first confirm trial of every cell trains alone: its time is the row's
        cost. So do search trials that are judged by the median of finished ones: within a cohort
        none has finished, unless it is those of earlier rounds that count.
        """
        searches, in_rounds = trial.config.phase == "search", self.spec.search.batch is not None
        by_finished = searches and self.spec.scheduler.name == "median" and not in_rounds
        if self.spec.cohort == 1 or by_finished or not (searches or trial.number):
            return None
        if trial.key not in self._shapes:
            self._shapes[trial.key] = _shape(trial.config)
        return self._shapes[trial.key]

    def keep_apart(self, trial: PlannedTrial) -> None:
        """Let ``auto`` no longer group its shape: a worker found that to be no faster."""
        if shape := self.shape(trial):
            self._slower.add(shape)

    def most(self, trial: PlannedTrial, workers: int) -> int:
        """How many may be trained together with a trial that has a shape.

        ``auto``: as many as memory allows, if a gain is expected; workers then measure it.
        """
        if isinstance(self.spec.cohort, int):
            return min(self.spec.cohort, self.limit)
        if trial.cell not in self._demands:
            try:
                self._demands[trial.cell] = self._demand(trial)
            except Exception:  # a user's own model may raise anything; its trials report it
                self._demands[trial.cell] = None
        demand = self._demands[trial.cell]
        if demand is None or self.shape(trial) in self._slower:
            return 1
        room = MEMORY_SHARE * available_memory() / workers
        members = max(1, min(AUTO_MOST, self.limit, int(room / demand.member_bytes)))
        return members if demand.gain(members) <= WORTH_A_TRY else 1

    def _demand(self, trial: PlannedTrial) -> NetworkDemand | None:
        """What a network of the cell needs; None if its trials are better trained alone.

        A time limit holds for one trial, a user's own method may not have passed
        ``check_method``, and cohorts on GPUs have not been measured.
        """
        config, kind = trial.config, learner(trial.config.method)
        ours = kind.__module__.startswith("calibration.")
        if self.spec.time_limit is not None or config.device != "cpu" or not ours:
            return None
        model, dataset = config.model, self.loaded.datasets[config.dataset_name]
        assert model is not None, "an estimator has no shape"
        splits = dataset.split(self.spec.protocol, config.seed, held_out=False)
        splits = stand_in(model, splits)
        few = splits.transform(splits.train.inputs[:2])
        with seeded(0, "counting"), torch.no_grad():
            network = build_model(model.name, model.options, tuple(few.shape[1:]), dataset.classes)
            each = _multiplications(network, few)
            functional = FunctionalModel(network)
        rows, size = len(splits.train.labels), config.training.batch_size
        batch = rows if size == "full" else min(rows, size)
        held = few[0].numel() * few.element_size() * rows
        return NetworkDemand(
            each * batch,
            batch,
            by_hand=functional.dense is not None and _by_hand(kind),
            member_bytes=held + STATES * 4 * functional.size,
        )


def _by_hand(kind: type[Any]) -> bool:
    """Whether a method steps many networks of linear layers without ``torch.vmap``."""
    return issubclass(kind, Method) and kind.steps_together is not Method.steps_together


def _multiplications(network: Network, rows: Tensor) -> float:
    """The multiplications of a network's forward pass of one row."""
    if network.dense_form is not None:
        return float(sum(a * b for a, b in pairwise(network.dense_form.widths)))
    from torch.utils.flop_counter import FlopCounterMode  # imports torch's compiler: seconds

    with FlopCounterMode(display=False) as counter:
        network.eval()(rows)
    return float(counter.get_total_flops()) / 2 / len(rows)  # a product and a sum are two


class NetworkDemand(NamedTuple):
    """What one network needs: multiplications and rows of a step's batch, and memory."""

    multiplications: float
    rows: int
    by_hand: bool
    member_bytes: int

    def gain(self, members: int) -> float:
        """The share of the time one by one that training in a cohort is expected to take."""
        return gain(
            members,
            multiplications=self.multiplications,
            rows=self.rows,
            by_hand=self.by_hand,
        )


def _shape(config: TrialConfig) -> Shape | None:
    training = config.training
    if config.model is None or training.mixed_precision or training.threads > 1:
        return None
    method = make_method(config.method, config.hyperparameters)
    if method.alone:
        return None
    common: dict[str, Any] = determining(config) | {
        "method/hyperparameters": method.shared,
        "seed": "",
    }
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()[:32]
