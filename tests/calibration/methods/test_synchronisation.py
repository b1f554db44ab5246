"""No step waits for the device: what a GPU computes is read between epochs only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from calibration.methods import METHODS, make_method
from calibration.seeds import seeded
from calibration.testing import problems
from calibration.training import Totals, TrainingRun

WAITING = {
    "_local_scalar_dense",  # bool, int, float or item of a tensor
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "equal",
    "bincount",
    "repeat_interleave",
    "_assert_async",
}


class Waits(TorchDispatchMode):
    """Counts the operations for which the host must know what a tensor holds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = name.startswith("index") and any(
            isinstance(given, torch.Tensor) and given.dtype == torch.bool
            for given in tree_leaves(args[1])
        )
        if name in WAITING or masks:
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


def waits_of_an_epoch(run: TrainingRun) -> Counter[str]:
    """Of its batches, steps and sums; what follows the last step is left out."""
    numbers, totals = run.numbers_now(), Totals()
    with torch.no_grad(), seeded(run.seed, "epoch", run.epoch) as generator, Waits() as waits:
        for window in run.windows(generator):
            run.state, logged = run.method.steps(run.learner, run.state, window, numbers, generator)
            totals.add(logged)
    run.end_epoch(1, totals.means(), numbers)
    return waits.found


def fresh(name: str, hyperparameters: dict[str, Any]) -> TrainingRun:
    problem = problems.two_clouds()
    method = make_method(name, hyperparameters)
    return problem.run(method, problem.splits(method))


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in METHODS),
    ("mmce", {"schedule": "switch"}),
    ("mmce", {"schedule": "interleaved"}),
    ("mmce", {"schedule": "gradient_balanced"}),
    ("multi_objective", {"weighting": "meta"}),
    ("fl_gamma_sece", {"lookahead": "all"}),
    ("bo4sc", {"outer_optimiser": "adam", "restart": "initial"}),
    ("bo4sc", {"engine": "adjoint"}),
    ("bo4sc", {"engine": "truncated", "engine_terms": 2}),
    ("bo4sc", {"engine": "one_step"}),
]


@pytest.mark.parametrize(("name", "hyperparameters"), VARIANTS)
def test_no_step_and_no_batch_waits_for_the_device(
    name: str, hyperparameters: dict[str, Any]
) -> None:
    run = fresh(name, hyperparameters)
    while run.epoch < 3:  # past the first steps and BO4SC's warm phase
        assert not waits_of_an_epoch(run)


def test_waits_are_counted() -> None:
    values = torch.arange(4.0)
    with Waits() as waits:
        float(values[1]), bool(values[0] > 0), values[values > 1], values.nonzero()
    assert waits.found == {"_local_scalar_dense": 2, "index": 1, "nonzero": 1}
