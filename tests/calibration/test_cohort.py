"""A cohort's members are, to the bit, the networks that they are alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration import cohort as cohorts
from calibration import cohort_step, cohort_times, cohort_validation, steady
from calibration.cohort import Cohort
from calibration.cohort_times import TIMED, EpochTimes, gain
from calibration.data import Part
from calibration.methods import METHODS, Batch, Learner, Numbers, TrainState, make_method
from calibration.methods.descent import moved_together
from calibration.methods.standard import Standard
from calibration.metrics import METRICS, Metric
from calibration.models import Output
from calibration.optimisers import Adam
from calibration.testing import problems
from calibration.testing.equality import difference
from calibration.threads import threads
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from calibration.validation import measured, measured_together


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cohorts, "PASSED", {})  # nothing has been compared before
    monkeypatch.setattr(cohort_times, "EPOCH_TIMES", {})
    with threads(1):
        yield


class Counted(Standard):
    """Counts its calls, and fails at the learning rates it is told to."""

    calls = 0
    fails_at: tuple[float, ...] = ()
    error: Exception = FloatingPointError("told to fail")

    def steps(self, *arguments: Any) -> tuple[TrainState, dict[str, Tensor]]:
        Counted.calls += 1
        if self.hyperparameters.lr in self.fails_at:
            raise self.error
        return super().steps(*arguments)


def run_of(
    place: int,
    method: str = "standard",
    own: dict[str, Any] | None = None,
    seed: int | None = None,
    **config: Any,
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
        seed=place % 3 if seed is None else seed,
    )


def weighted(place: int, method: str, batch_size: Any) -> TrainingRun:
    """Rows with weights of the member's own; every fourth member has none."""
    run = run_of(place, method, batch_size=batch_size)
    generator = torch.Generator().manual_seed(place % 3)
    for name in ("train", "validation", "held_out") if place % 4 != 3 else ():
        part = getattr(run, name)
        if part is not None:
            weights = torch.rand(len(part.labels), generator=generator, dtype=torch.float64)
            setattr(run, name, part._replace(weights=weights))
    return run


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


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": "full"},
        {"optimiser": "sgd"},
        {},
        {"optimiser": "adamw", "clip_norm": 0.2, "ema_decay": 0.9},
    ],
    ids=str,
)
def test_twenty_members_are_what_they_are_alone(settings: dict[str, Any]) -> None:
    """More than fill a vector register: there Adam's powers go through another kernel."""
    members = [run_of(place, **settings) for place in range(20)]
    trained(members)
    for place, member in enumerate(members):
        assert difference(untimed(finished(run_of(place, **settings))), untimed(member)) is None


def test_members_of_one_seed_share_their_batches_and_are_what_they_are_alone() -> None:
    """As the trials of a search: their rows come in the same order, so each is taken once."""
    members = [run_of(place, seed=5, batch_size=32) for place in range(6)]
    cohort = Cohort(members)
    generators = [torch.Generator().manual_seed(1) for _ in members]
    for window in cohort_step.windows(members, generators):
        assert not any(window.own)
    others = [torch.Generator().manual_seed(place) for place in range(6)]
    for window in cohort_step.windows(members, others):
        assert any(window.own)
    while cohort.active:
        cohort.run_epoch()
    assert {cohort.why_apart(member) for member in members} == {""}
    for place, member in enumerate(members):
        alone = finished(run_of(place, seed=5, batch_size=32))
        assert difference(untimed(alone), untimed(member)) is None


@pytest.mark.parametrize(
    ("method", "batch_size"), [("standard", 32), ("standard", "full"), ("fl_gamma", 32)]
)
def test_members_with_weights_are_what_they_are_alone(method: str, batch_size: Any) -> None:
    """Each draws its own rows; their steps are taken together where bits allow."""
    members = [weighted(place, method, batch_size) for place in range(6)]
    cohort = trained(members)
    assert not any("cannot be batched" in reason for reason in cohort.apart.values())
    for place, member in enumerate(members):
        alone = finished(weighted(place, method, batch_size))
        assert difference(untimed(alone), untimed(member)) is None
    plain = finished(run_of(0, method, batch_size=batch_size))
    assert difference(untimed(plain)["state"], untimed(members[0])["state"]) is not None


def test_members_step_together_where_bits_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine's kernels do: here the comparison is told to find no difference."""
    monkeypatch.setattr(cohort_step, "same_bits", lambda one, other: True)
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


@pytest.mark.parametrize("faster", ["together", "one by one"])
def test_timed_members_go_the_way_that_is_faster(
    monkeypatch: pytest.MonkeyPatch, faster: str
) -> None:
    """Time is counted in calls of steps, which are fewest together; or backwards."""
    monkeypatch.setattr(cohort_step, "same_bits", lambda one, other: True)
    monkeypatch.setattr(steady, "TWO_FORMULAS", set())
    monkeypatch.setattr(steady, "SMALL_PRODUCT", 0)
    sign = 1 if faster == "together" else -1
    monkeypatch.setattr(cohorts, "clock", lambda device: sign * float(Counted.calls))
    settings = {"batch_size": "full", "epochs": 30, "evaluate_every": 30}
    members = [counted(place, **settings) for place in range(4)]
    Counted.calls, cohort = 0, Cohort(members, timed=True)
    while cohort.active:
        cohort.run_epoch()
    first, rest = cohorts.COMPARISONS, 30 - cohorts.COMPARISONS - 2 * TIMED
    each = 1 if faster == "together" else 4
    assert Counted.calls == first * 5 + TIMED * (1 + 4) + rest * each
    later = Cohort([counted(place, **settings) for place in range(4)], timed=True)
    reasons = {later.why_apart(run) for run in later.runs}
    assert ["one by one is faster" in reason for reason in reasons] == [faster != "together"]


def test_measuring_time_changes_no_number() -> None:
    members = [run_of(place, epochs=9) for place in range(4)]
    cohort = Cohort(members, timed=True)
    while cohort.active:
        cohort.run_epoch()
    for place, member in enumerate(members):
        assert difference(untimed(finished(run_of(place, epochs=9))), untimed(member)) is None


def test_the_two_ways_are_compared_by_epochs_of_one_sort() -> None:
    for every in (2, 3, 4):
        times, ways = EpochTimes(), []
        while times.compared is None:
            ways.append(times.together_next)
            looked = len(ways) % every == 0  # which takes ten times as long
            seconds = (0.1 if ways[-1] else 0.2) * (10 if looked else 1)
            times.add(seconds, together=ways[-1], looked=looked)
        assert len(ways) <= 8
        assert times.compared == (0.1, 0.2)
        assert times.together_next
        assert times.reason == ""


def one_at_a_time_of(name: str) -> Callable[..., Tensor]:
    """``Metric.measure``, but for one metric that makes a single number of whatever it is given."""
    measure = Metric.measure

    def measured(metric: Metric, predictions: Any, bins: int) -> Tensor:
        found = measure(metric, predictions, bins)
        return found.mean() if metric.name == name else found

    return measured


def test_a_metric_that_takes_no_batches_is_measured_one_by_one_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_curve = next(iter(METRICS.curve()))
    monkeypatch.setattr(Metric, "measure", one_at_a_time_of(in_curve))
    members = [run_of(place, evaluate_every=1) for place in range(3)]
    cohort = trained(members)
    assert not cohort.failures
    for place, member in enumerate(members):
        assert f"one by one: metrics: {in_curve!r}" in cohort.why_apart(member)
        alone = finished(run_of(place, evaluate_every=1))
        assert difference(untimed(alone), untimed(member)) is None


def test_any_other_error_of_measuring_together_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(cohort_validation, "measured_together", broken)
    cohort = Cohort([run_of(place, evaluate_every=1) for place in range(3)])
    with pytest.raises(KeyError, match="no such thing"):
        cohort.run_epoch()


def test_a_difference_in_one_bit_keeps_members_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohort_step, "same_bits", lambda one, other: False)
    members = [run_of(place) for place in range(3)]
    cohort = trained(members)
    assert "the same bits" in next(iter(cohort.apart.values()))
    for place, member in enumerate(members):
        assert difference(untimed(finished(run_of(place))), untimed(member)) is None


def test_bits_are_compared_as_bits() -> None:
    one = {"a": torch.tensor([1.0, torch.nan])}
    assert cohort_step.same_bits(one, {"a": torch.tensor([1.0, torch.nan])})
    assert not cohort_step.same_bits(one, {"a": torch.tensor([1.0 + 2**-23, torch.nan])})
    assert not cohort_step.same_bits(one, {"a": torch.tensor([1.0, 0.0])})
    assert not cohort_step.same_bits(one, {"b": torch.tensor([1.0, torch.nan])})


@pytest.mark.parametrize("error", [FloatingPointError, MemoryError, torch.cuda.OutOfMemoryError])
def test_a_member_that_raises_takes_nobody_with_it(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    members = [counted(place) for place in range(4)]
    monkeypatch.setattr(Counted, "error", error("told to fail"))
    monkeypatch.setattr(Counted, "fails_at", (0.004,))
    cohort = trained(members)
    assert {place: repr(e) for place, e in cohort.failures.items()} == {
        1: f"{error.__name__}('told to fail')"
    }
    assert members[1].epoch == 0
    for place in (0, 2, 3):
        assert difference(untimed(finished(run_of(place))), untimed(members[place])) is None


def test_members_that_are_done_take_part_no_further() -> None:
    members = [run_of(place, patience=2, epochs=12) for place in range(4)]
    members.append(run_of(0, own={"lr": 10.0, "weight_decay": 1.0}, optimiser="sgd", epochs=12))
    cohort = Cohort(members)
    while cohort.active:
        cohort.run_epoch()
    for place in range(4):
        alone = finished(run_of(place, patience=2, epochs=12))
        assert difference(untimed(alone), untimed(members[place])) is None
    alone = finished(run_of(0, own={"lr": 10.0, "weight_decay": 1.0}, optimiser="sgd", epochs=12))
    assert difference(untimed(alone), untimed(members[4])) is None


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("mixup", {"alpha": 0.3}),
        ("adafocal", {}),
        ("bo4sc", {"inner_steps": 2, "engine": "adjoint"}),
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


@pytest.mark.parametrize("batch_size", ["full", 32])
@pytest.mark.parametrize(
    "own",
    [
        {},
        {"outer_optimiser": "adam", "outer_lr": 0.03},
        {"restart": "initial", "outer_loss": "nll"},
    ],
    ids=str,
)
def test_sample_weights_are_learned_together_as_alone(own: dict[str, Any], batch_size: Any) -> None:
    own = {"inner_steps": 3, "warm_share": 0.4, "project": False} | own
    config = {"epochs": 12, "batch_size": batch_size}
    members = [run_of(place, "bo4sc", own, **config) for place in range(6)]
    cohort = trained(members)
    assert {cohort.why_apart(member) for member in members} == {""}
    for place, member in enumerate(members):
        alone = finished(run_of(place, "bo4sc", own, **config))
        assert difference(untimed(alone), untimed(member)) is None
        assert not bool((member.state.method["weights"] == 1).all())


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


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_can_be_batched_or_says_why_not(name: str) -> None:
    """Which bits are the same is up to the kernels; that its step can be batched is its own."""
    members = [run_of(place, name, seed=0, epochs=1) for place in range(2)]
    cohort = trained(members)
    assert not cohort.failures
    (reason,) = {cohort.why_apart(member) for member in members}
    assert reason == members[0].method.alone or reason.startswith("no batch gives the same bits")


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
    cohort = trained(members)
    reason = "its step cannot be batched: vmap: called random operation while in randomness error"
    assert cohort.why_apart(members[0]).startswith(reason)
    assert "Please" not in cohort.why_apart(members[0])
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


def test_validation_rows_are_looked_at_together_and_say_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever this machine's kernels do: here the comparison is told to find no difference."""
    monkeypatch.setattr(cohorts, "measured_equally", lambda runs, alone: True)
    looks: list[int] = []
    alone = TrainingRun.measure
    monkeypatch.setattr(
        TrainingRun, "measure", lambda run: (looks.append(run.epoch), alone(run))[1]
    )
    members = [run_of(place, evaluate_every=1, epochs=6) for place in range(3)]
    trained(members)
    assert looks == [epoch for epoch in range(1, 1 + cohorts.COMPARISONS) for _ in members]
    for place, member in enumerate(members):
        expected = finished(run_of(place, evaluate_every=1, epochs=6)).curve
        for found, row in zip(member.curve, expected, strict=True):
            assert found == pytest.approx(row, rel=1e-4, abs=1e-5)


def test_a_diverged_member_is_measured_beside_the_others() -> None:
    outputs = [Output(torch.randn(40, 3), torch.zeros(40, 1)) for _ in range(3)]
    outputs[1].logits[7, 0] = torch.nan
    parts = [Part(torch.zeros(40, 1), torch.arange(40) % 3)] * 3
    logits = [output.logits for output in outputs]
    together = measured_together(parts, outputs, logits, refinement=True)
    for found, output in zip(together, outputs, strict=True):
        expected = measured(parts[0], output, output.logits, refinement=True).row
        assert found.row == pytest.approx(expected, rel=1e-12)
    assert [bool(found.row) for found in together] == [True, False, True]


@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("size", ["full", 48])
def test_stacked_batches_are_the_rows_that_members_see_alone(size: Any, own_rows: bool) -> None:
    runs = [run_of(place, batch_size=size) for place in range(3)]
    for place, run in enumerate(runs):
        run.train = runs[0].train
        if own_rows:
            run.train = run.train._replace(inputs=run.train.inputs + place)
    generators = [torch.Generator().manual_seed(place) for place in range(3)]
    stacked = list(cohort_step.windows(runs, generators))
    for place, run in enumerate(runs):
        alone = list(run.windows(torch.Generator().manual_seed(place)))
        for window, expected in zip(stacked, alone, strict=True):
            assert difference(window.member(place), expected) is None


class Doubled(Standard):
    """A user's method that inherits everything from another one but its loss."""

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        return 2 * super().loss(output, labels, numbers)


def test_a_loss_of_ones_own_is_not_taken_for_the_inherited_one() -> None:
    def run() -> TrainingRun:
        made = run_of(0, epochs=1, batch_size="full")
        made.method = Doubled(made.method.hyperparameters)
        return made

    plain, alone = run_of(0, epochs=1, batch_size="full").run_epoch(), run().run_epoch()
    assert alone["train/loss"] == pytest.approx(2 * plain["train/loss"])
    members = [run(), run()]
    trained(members)
    assert members[0].curve[0] == alone


@dataclass(frozen=True)
class Undeclared(Adam):
    """Adam, for which nobody has said that it is elementwise."""

    elementwise = False


def test_an_optimiser_takes_the_same_step_elementwise_and_under_vmap() -> None:
    run = run_of(0)
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(4, run.learner.model.size, generator=generator)
    optimiser = torch.vmap(Adam().initial)(parameters)
    state = TrainState(parameters, {}, optimiser, {})
    numbers = {"lr": torch.rand(4) / 10, "weight_decay": torch.rand(4) / 10}
    slope = torch.randn(parameters.shape, generator=generator)
    with torch.no_grad():
        found, expected = (
            moved_together(replace(run.learner, optimiser=made), state, slope, numbers)
            for made in (Adam(), Undeclared())
        )
    torch.testing.assert_close(found, expected)


def test_small_batches_gain_and_wide_networks_under_vmap_do_not() -> None:
    wide = {"multiplications": 128 * (2 * 256 + 256 * 256 + 256 * 5), "rows": 128}
    small = {"multiplications": 64 * (2 * 64 + 64 * 64 + 64 * 5), "rows": 64}
    assert gain(8, **wide, by_hand=True) < 1 < gain(8, **wide, by_hand=False)
    assert gain(16, **small, by_hand=True) < 0.35
    for by_hand in (True, False):
        gains = [gain(members, **small, by_hand=by_hand) for members in (4, 16, 64)]
        assert gains == sorted(gains, reverse=True)
