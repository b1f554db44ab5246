"""A cohort's members are, to the bit, the networks that they are alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration import cohort as cohorts
from calibration import steady
from calibration.cohort import Cohort
from calibration.methods import Batch, Learner, Numbers, TrainState, make_method
from calibration.methods.standard import Standard
from calibration.testing import problems
from calibration.testing.equality import difference
from calibration.threads import threads
from calibration.training import TrainingConfig, TrainingRun


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threads(1):
        yield


class Counted(Standard):
    """Counts its calls, and fails at the learning rates it is told to."""

    calls = 0
    fails_at: tuple[float, ...] = ()

    def steps(self, *arguments: Any) -> tuple[TrainState, dict[str, Tensor]]:
        Counted.calls += 1
        if self.hyperparameters.lr in self.fails_at:
            raise FloatingPointError("told to fail")
        return super().steps(*arguments)


def run_of(
    place: int, method: str = "standard", own: dict[str, Any] | None = None, **config: Any
) -> TrainingRun:
    problem = problems.two_clouds()
    settings = {"epochs": 4, "batch_size": 32, "evaluate_every": 2} | config
    made = make_method(method, {"lr": 0.002 * (1 + place), "weight_decay": 1e-4} | (own or {}))
    return TrainingRun(
        made,
        problem.splits(made),
        model="mlp",
        model_options={"widths": (16,)},
        classes=2,
        config=TrainingConfig.model_validate(settings),
        seed=place % 3,
    )


def counted(place: int, **config: Any) -> TrainingRun:
    run = run_of(place, **config)
    run.method = Counted(run.method.hyperparameters)
    return run


def finished(run: TrainingRun) -> TrainingRun:
    while not run.done:
        run.run_epoch()
    return run


def trained(runs: list[TrainingRun]) -> Cohort:
    cohort = Cohort(runs)
    while cohort.active:
        cohort.run_epoch()
    return cohort


def untimed(run: TrainingRun) -> dict[str, Any]:
    return run.state_dict() | {"seconds": 0.0}


@pytest.mark.parametrize("settings", [{"batch_size": "full"}, {"optimiser": "sgd"}, {}], ids=str)
def test_twenty_members_are_what_they_are_alone(settings: dict[str, Any]) -> None:
    """More than fill a vector register: there Adam's powers go through another kernel."""
    members = [run_of(place, **settings) for place in range(20)]
    trained(members)
    for place, member in enumerate(members):
        assert difference(untimed(finished(run_of(place, **settings))), untimed(member)) is None


def test_members_step_together_where_bits_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine's kernels do: here the comparison is told to find no difference."""
    monkeypatch.setattr(cohorts, "same_bits", lambda one, other: True)
    monkeypatch.setattr(steady, "TWO_FORMULAS", set())
    monkeypatch.setattr(steady, "SMALL_PRODUCT", 0)
    members = [counted(place, batch_size="full", epochs=30) for place in range(4)]
    Counted.calls = 0
    trained(members)
    assert Counted.calls == 30 + 4 * cohorts.COMPARISONS  # in the first epochs also everybody's own
    for place, member in enumerate(members):
        alone = finished(run_of(place, batch_size="full", epochs=30))
        torch.testing.assert_close(
            member.state.parameters, alone.state.parameters, rtol=1e-3, atol=1e-4
        )


def test_a_difference_in_one_bit_keeps_members_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohorts, "same_bits", lambda one, other: False)
    members = [run_of(place) for place in range(3)]
    cohort = trained(members)
    assert "the same bits" in next(iter(cohort.apart.values()))
    for place, member in enumerate(members):
        assert difference(untimed(finished(run_of(place))), untimed(member)) is None


def test_bits_are_compared_as_bits() -> None:
    one = {"a": torch.tensor([1.0, torch.nan])}
    assert cohorts.same_bits(one, {"a": torch.tensor([1.0, torch.nan])})
    assert not cohorts.same_bits(one, {"a": torch.tensor([1.0 + 2**-23, torch.nan])})
    assert not cohorts.same_bits(one, {"a": torch.tensor([1.0, 0.0])})
    assert not cohorts.same_bits(one, {"b": torch.tensor([1.0, torch.nan])})


def test_a_member_that_raises_takes_nobody_with_it() -> None:
    members = [counted(place) for place in range(4)]
    Counted.fails_at = (0.004,)
    try:
        cohort = trained(members)
    finally:
        Counted.fails_at = ()
    assert {place: str(e) for place, e in cohort.failures.items()} == {1: "told to fail"}
    assert members[1].epoch == 0
    for place in (0, 2, 3):
        assert difference(untimed(finished(run_of(place))), untimed(members[place])) is None


def test_members_that_are_done_or_leave_take_part_no_further() -> None:
    members = [run_of(place, patience=2, epochs=12) for place in range(4)]
    members.append(run_of(0, own={"lr": 10.0, "weight_decay": 1.0}, optimiser="sgd", epochs=12))
    cohort = Cohort(members)
    cohort.run_epoch()
    cohort.leave(members[2])
    while cohort.active:
        cohort.run_epoch()
    assert members[2].epoch == 1
    for place in (0, 1, 3):
        alone = finished(run_of(place, patience=2, epochs=12))
        assert difference(untimed(alone), untimed(members[place])) is None
    alone = finished(run_of(0, own={"lr": 10.0, "weight_decay": 1.0}, optimiser="sgd", epochs=12))
    assert difference(untimed(alone), untimed(members[4])) is None


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("mixup", {"alpha": 0.3}),
        ("adafocal", {}),
        ("bo4sc", {"inner_steps": 2}),
        ("fl_gamma_sece", {}),
        ("multi_objective", {"weighting": "meta"}),
    ],
)
def test_methods_that_draw_learn_or_look_ahead_stay_what_they_are(
    method: str, own: dict[str, Any]
) -> None:
    members = [run_of(place, method, own, epochs=3) for place in range(3)]
    trained(members)
    for place, member in enumerate(members):
        alone = finished(run_of(place, method, own, epochs=3))
        assert difference(untimed(alone), untimed(member)) is None


def test_networks_that_draw_train_alone() -> None:
    def run() -> TrainingRun:
        problem = problems.two_clouds()
        method = make_method("standard", {})
        return TrainingRun(
            method,
            problem.splits(method),
            model="mlp",
            model_options={"widths": (16,), "dropout": 0.5},
            classes=2,
            config=TrainingConfig(epochs=3, batch_size=32),
            seed=1,
        )

    members = [run(), run()]
    cohort = trained(members)
    assert "cannot be batched" in next(iter(cohort.apart.values()))
    for member in members:
        assert difference(untimed(finished(run())), untimed(member)) is None


class DrawsInside(Standard):
    """A user's method that draws in its step, as those written before cohorts do."""

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        noise = torch.randn(batch.inputs.shape, generator=generator)
        noisy = batch._replace(inputs=batch.inputs + 0.1 * noise)
        return super().step(learner, state, noisy, numbers, generator)


def test_a_method_that_draws_in_its_step_trains_alone() -> None:
    def run(place: int) -> TrainingRun:
        made = run_of(place)
        made.method = DrawsInside(made.method.hyperparameters)
        return made

    members = [run(place) for place in range(3)]
    trained(members)
    for place, member in enumerate(members):
        assert difference(untimed(finished(run(place))), untimed(member)) is None


def test_the_loss_is_summed_as_alone_and_has_the_same_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 700, 3, generator=generator)
    labels = torch.randint(3, (5, 700), generator=generator)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels)

    with steady.SteadyLoss():
        slopes, values = torch.vmap(torch.func.grad_and_value(loss))(logits, labels)
    pairs = zip(logits, labels, strict=True)
    expected = [torch.func.grad_and_value(loss)(*pair) for pair in pairs]
    assert torch.equal(values, torch.stack([value for _, value in expected]))
    torch.testing.assert_close(slopes, torch.stack([slope for slope, _ in expected]))


@pytest.mark.parametrize(
    ("function", "rows", "found"),
    [
        (lambda x: x @ x.T, 2, {"small matrix products"}),
        (lambda x: x @ x.T, 20, set()),
        (lambda x: x.sigmoid(), 31, {"sigmoid"}),
        (lambda x: x.sigmoid(), 32, set()),
        (lambda x: x.square(), 31, set()),
        (lambda x: 0.9 ** x.sum(), 32, {"pow"}),
    ],
)
def test_kernels_that_round_otherwise_in_company_are_found(
    function: Callable[[Tensor], Tensor], rows: int, found: set[str]
) -> None:
    with steady.Unsteady(4) as unsteady:
        torch.vmap(function)(torch.ones(4, rows, 3))
    assert unsteady.found == found
