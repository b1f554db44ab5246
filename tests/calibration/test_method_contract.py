"""Every registered method keeps the contract, and a broken one is caught."""

from __future__ import annotations

import gc
import random
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from pydantic import BeforeValidator, ConfigDict, Field
from torch import Tensor
from torch.nn import functional as F

from calibration.data.fixed import FixedDataset
from calibration.hyperparameters import Uniform
from calibration.methods import (
    METHODS,
    Batch,
    Learner,
    LossMethod,
    Method,
    MethodHyperparameters,
    Numbers,
    Seen,
    TrainState,
)
from calibration.models import Output
from calibration.testing import ContractError, check_method
from calibration.testing.equality import difference


@pytest.mark.parametrize("name", list(METHODS))
def test_method_keeps_the_contract(name: str) -> None:
    check_method(METHODS[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hyperparameters"),
    [
        ("mmce", {"schedule": "switch"}),
        ("mmce", {"schedule": "interleaved"}),
        ("mmce", {"schedule": "gradient_balanced"}),
        ("multi_objective", {"weighting": "meta"}),
        ("fl_gamma_sece", {"lookahead": "all"}),
        ("meta_label_smoothing", {"per_class": True}),
        ("bo4sc", {"engine": "adjoint", "inner_steps": 3}),
        (
            "bo4sc",
            {"outer_optimiser": "adam", "outer_lr": 0.03, "restart": "initial"}
            | {"inner_steps": 40, "lr": 0.03},
        ),
    ],
)
def test_variants_that_train_another_way_keep_it_too(
    name: str, hyperparameters: dict[str, Any]
) -> None:
    check_method(METHODS[name], hyperparameters)


class Honest(LossMethod):
    """The least that keeps the contract; the classes below break one rule each."""

    description = "cross-entropy"

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        return F.cross_entropy(output.logits, labels)


Step = tuple[TrainState, dict[str, Tensor]]


def plain(
    learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, factor: float = 1.0
) -> Step:
    """An honest step with the learning rate multiplied by ``factor``."""
    numbers = numbers | {"lr": numbers["lr"] * factor}
    method = Honest(MethodHyperparameters())
    return method.step(learner, state, batch, numbers, torch.Generator())


def test_an_honest_method_passes_and_the_surroundings_stay_as_they_were() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        expected = random.random(), np.random.rand(), float(torch.rand(()))
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        check_method(Honest)
        assert torch.get_num_threads() == 2
        assert (random.random(), np.random.rand(), float(torch.rand(()))) == expected
    finally:
        torch.set_num_threads(threads)


def test_hyperparameters_given_to_the_check_are_those_it_trains_with() -> None:
    with pytest.raises(ContractError, match="must learn separable data"):
        check_method(Honest, {"lr": 1e-9})


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        (
            {"a": [1, torch.tensor([0.5, torch.nan])]},
            {"a": [1, torch.tensor([0.5, torch.nan])]},
            None,
        ),
        ({"a": [1, torch.tensor([0.5, 1.0])]}, {"a": [1, torch.tensor([0.5, torch.nan])]}, "a.1"),
        ({"a": torch.ones(2)}, {"a": torch.ones(2, dtype=torch.float64)}, "a"),
        ({"a": torch.ones(2)}, {"a": torch.ones(1)}, "a"),
        ({"a": {"b": 1.0}}, {"a": {"b": 1}}, "a.b (1.0 and 1)"),
        ({"a": float("nan")}, {"a": float("nan")}, None),
        ({"a": (1, 2)}, {"a": (1,)}, "a (lengths 2 and 1)"),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, "a (names ['b'] and ['c'])"),
    ],
)
def test_a_difference_is_found_and_placed(one: Any, other: Any, place: str | None) -> None:
    assert difference(one, other) == place


class TwoLines(Honest):
    description = "cross-\nentropy"


class Unversioned(Honest):
    version = 0


class Unwritten(Method):
    description = "has no step"


class NamesNoTuple(Honest):
    inference_state = "scale"  # type: ignore[assignment]


class RequiredHyperparameter(MethodHyperparameters):
    strength: Annotated[float, Field(ge=0, le=1)]


class InvalidDefault(MethodHyperparameters):
    strength: Annotated[float, Field(ge=0, le=1)] = 2.0


class WideDomain(MethodHyperparameters):
    strength: Annotated[float, Field(ge=0, le=1), Uniform(0.0, 5.0)] = 0.5


class TakesWords(MethodHyperparameters):
    model_config = ConfigDict(strict=False)


class ForgivesTypos(MethodHyperparameters):
    model_config = ConfigDict(extra="ignore")


class Clamps(MethodHyperparameters):
    strength: Annotated[
        float,
        Field(ge=0, le=1),
        BeforeValidator(lambda v: min(v, 1) if type(v) in (int, float) else v),
    ] = 0.5


def declaring(hyperparameters: Any) -> type[Method]:
    return type(f"With{hyperparameters.__name__}", (Honest,), {"Hyperparameters": hyperparameters})


class Idle(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        return plain(learner, state, batch, numbers, factor=0.0)


class RaisesOnOne(Honest):
    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        if len(labels) == 1:
            raise ValueError("one sample has no variance")
        return super().loss(output, labels, numbers)


class NoNumberOnOne(Honest):
    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        spread = (output.logits - output.logits.mean(dim=0)).square().sum() / (len(labels) - 1)
        return super().loss(output, labels, numbers) + 0.01 * spread


class AddsAClass(Honest):
    def map_logits(self, logits: Tensor, method_state: dict[str, Tensor]) -> Tensor:
        return torch.cat([logits, logits[:, :1] - 9], dim=1)


class LooksAtOtherRows(Honest):
    def map_logits(self, logits: Tensor, method_state: dict[str, Tensor]) -> Tensor:
        return logits / logits.std()


class ChangesInPlace(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        state.optimiser["mean"].mul_(0.5)
        return plain(learner, state, batch, numbers)


class DescribesInPlace(Honest):
    def describe(self, state: TrainState, validation: Seen, numbers: Numbers) -> dict[str, Tensor]:
        return {"mean": validation.output.logits.sub_(1.0).mean()}


class LogsNoLoss(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        state, logged = plain(learner, state, batch, numbers)
        return state, {"risk": logged["loss"]}


class LogsAVector(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        state, logged = plain(learner, state, batch, numbers)
        return state, logged | {"labels": batch.labels.float()}


class DescribesTheError(Honest):
    def describe(self, state: TrainState, validation: Seen, numbers: Numbers) -> dict[str, Tensor]:
        return {"error": torch.zeros(())}


class KeepsAList(Honest):
    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        return {"losses": []}  # type: ignore[dict-item]


class KeepsTheGraph(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        state, logged = plain(learner, state, batch, numbers)
        return state._replace(parameters=state.parameters.requires_grad_()), logged


class DrawsGlobally(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        return plain(learner, state, batch, numbers, factor=float(torch.rand(())))


class DrawsFromPython(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        return plain(learner, state, batch, numbers, factor=1 + 0.1 * random.random())


class DrawsFromNumpy(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        return plain(learner, state, batch, numbers, factor=1 + 0.1 * np.random.rand())


class LeaksIntoTheNextRun(Honest):
    taken = 0

    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        LeaksIntoTheNextRun.taken += 1
        return plain(learner, state, batch, numbers, factor=1 + self.taken / 1000)


class RemembersTheFirstRun(Honest):
    """All later runs are alike, but they are not what they would be in a fresh process."""

    first_loss: float | None = None

    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        state, logged = plain(learner, state, batch, numbers)
        if self.first_loss is None:
            RemembersTheFirstRun.first_loss = float(logged["loss"])
        return state, logged


class StartsFromZero(Honest):
    """Fixed parameters, full batches: nothing of the seed is left."""

    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        if not bool(state.optimiser["step"]):
            fixed = torch.sin(torch.arange(len(state.parameters)).float())
            state = state._replace(parameters=0.3 * fixed)
        return plain(learner, state, batch, numbers)


class AsksForTestData(Honest):
    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        return {
            "peeked": sum((d.test(0).labels.float().mean() for d in datasets()), torch.zeros(()))
        }


class FindsTestData(Honest):
    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        return {"peeked": sum((d._test.inputs.mean() for d in datasets()), torch.zeros(()))}


def datasets() -> list[FixedDataset]:
    return [found for found in gc.get_objects() if issubclass(type(found), FixedDataset)]


class LearnsFromValidation(Honest):
    factor = 1.0

    def describe(self, state: TrainState, validation: Seen, numbers: Numbers) -> dict[str, Tensor]:
        self.factor = float(validation.output.logits.softmax(1)[:, validation.labels].mean())
        return {}

    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        return plain(learner, state, batch, numbers, factor=self.factor)


class TakesHeldOutUnasked(Honest):
    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        if batch.held_out is not None:
            batch = batch._replace(labels=batch.held_out.labels[batch.rows % 60])
        return plain(learner, state, batch, numbers)


class HoldsOutInVain(Honest):
    needs_held_out = True


class CountsOnItself(Honest):
    taken = 0

    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        self.taken += 1
        return plain(learner, state, batch, numbers, factor=1 + self.taken / 100)


class DampedHyperparameters(MethodHyperparameters):
    damping: float = 1.0


class LooksPastItsNumbersLate(Honest):
    """In the first epoch, where steps are compared, all members of a cohort take their own."""

    Hyperparameters = DampedHyperparameters
    hyperparameters: DampedHyperparameters

    def step(self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers, _) -> Step:
        late = numbers["progress"] > 0
        damping = torch.where(late, self.hyperparameters.damping, numbers["damping"])
        return plain(learner, state, batch, numbers | {"lr": numbers["lr"] * damping})


class ForgetsItsMap(Honest):
    """Predictions need ``scale``, which ``inference_state`` does not name."""

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        return {"scale": torch.tensor(2.0)}

    def map_logits(self, logits: Tensor, method_state: dict[str, Tensor]) -> Tensor:
        return logits * method_state.get("scale", torch.tensor(1.0))


BROKEN = [
    (TwoLines, "description must be one line"),
    (Unversioned, "version must be a whole number from 1, found 0"),
    (Unwritten, "must write step"),
    (NamesNoTuple, "inference_state must be a tuple of names, found 'scale'"),
    (declaring(dict), "Hyperparameters must be a subclass of MethodHyperparameters"),
    (declaring(RequiredHyperparameter), "hyperparameter 'strength' must have a default"),
    (declaring(InvalidDefault), "the defaults must be valid: .*'strength' = 2.0"),
    (declaring(WideDomain), r"Uniform\(.*\), the domain of 'strength', must be valid: .* = 5.0"),
    (declaring(TakesWords), r"a word for a number \(\w+ = '1'\) must raise SettingError"),
    (
        declaring(ForgivesTypos),
        r"an unknown hyperparameter \(no_such_hyperparameter = 1.0\) must raise",
    ),
    (declaring(Clamps), r"a value out of bounds \(strength = 2\) must raise SettingError"),
    (Idle, r"\(MLP, 2 classes, mini-batches\): must learn separable data to an accuracy of 0.95"),
    (RaisesOnOne, "must not raise ValueError: one sample has no variance"),
    (NoNumberOnOne, "the training loss must be finite, found nan"),
    (AddsAClass, r"predict must give shape \(60, 2\), found \(60, 3\)"),
    (LooksAtOtherRows, "what map_logits makes of a row must not depend on the other rows"),
    (ChangesInPlace, "steps must change no argument in place"),
    (DescribesInPlace, "describe must change no argument in place"),
    (LogsNoLoss, r"steps must log 'loss', found \['risk'\]"),
    (LogsAVector, "must be 0-dim tensors without a graph; 'labels' is not"),
    (DescribesTheError, r"must leave the names of the curve's metrics: \['error'\]"),
    (KeepsAList, "method state must be tensors only; 'losses' is a list"),
    (KeepsTheGraph, "state.parameters must be detached from its graph"),
    (DrawsGlobally, "steps must draw from the generator it is given"),
    (DrawsFromPython, "the same seed must give the same, .*; state.parameters differs"),
    (DrawsFromNumpy, "the same seed must give the same, .*; state.parameters differs"),
    (LeaksIntoTheNextRun, "the same seed must give the same, whatever ran before"),
    (RemembersTheFirstRun, "training must leave the class alone: RemembersTheFirstRun.first_loss"),
    (StartsFromZero, "another seed must give another network"),
    (AsksForTestData, "test data must never be read"),
    (FindsTestData, "a poisoned test part must change nothing; state.method.peeked differs"),
    (LearnsFromValidation, "validation data must not influence training"),
    (TakesHeldOutUnasked, "held-out data must not influence a method without needs_held_out"),
    (HoldsOutInVain, "needs_held_out, but within 40 epochs other held-out labels do nothing"),
    (CountsOnItself, "a run continued from its checkpoint must be the same to the bit"),
    (ForgetsItsMap, "a stored network must predict the same"),
    (LooksPastItsNumbersLate, "a network trained in a cohort must be the same to the bit as alone"),
]


@pytest.mark.parametrize(("broken", "complaint"), BROKEN, ids=[b.__name__ for b, _ in BROKEN])
def test_a_broken_method_is_caught(broken: type[Method], complaint: str) -> None:
    with pytest.raises(ContractError, match=f"^{broken.__name__}.*{complaint}"):
        check_method(broken)
