"""Base loss + β · objective: the members, the base losses and the four schedules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from calibration.hyperparameters import Choice
from calibration.methods import METHODS, make_method
from calibration.methods.base_losses import base_loss
from calibration.methods.regularised import Regularised, balanced
from calibration.objectives import OBJECTIVES
from calibration.optimisers import Adam

MEMBERS = [n for n in METHODS if issubclass(METHODS[n], Regularised)]
SCHEDULES = ["joint", "switch", "interleaved", "gradient_balanced"]
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "sb_ece": {"bins": 7, "temperature": 0.05},
    "avuc": {"threshold": 0.3, "temperature": 0.4},
    "ks": {"sharpness": 20.0},
    "spline_ks": {"sharpness": 20.0, "knots": 4},
    "brier": {"bins": 7, "temperature": 0.05},
    "dece": {"bins": 7, "accuracy_temperature": 30.0, "bin_temperature": 0.05},
    "sece": {"bandwidth": 0.2, "accuracy_temperature": 30.0},
    "soft_histogram": {"bins": 7},
    "learned_histogram": {"bins": 7},
}


def test_every_objective_of_the_table_has_its_method() -> None:
    wanted = "mmce mmce_weighted mdca dca sb_ece avuc ks spline_ks brier confidence_penalty dece"
    further = {"sece", "soft_histogram", "learned_histogram"}
    assert set(wanted.split()) | further == set(MEMBERS)


@pytest.mark.parametrize("name", MEMBERS)
def test_joint_descends_base_plus_beta_times_objective(tiny, name: str) -> None:
    hyperparameters = HYPERPARAMETERS.get(name, {})
    state, records = tiny.step(name, {"beta": 0.7, "lr": 0.1, **hyperparameters})
    kind = METHODS[name]
    assert issubclass(kind, Regularised)
    labels = tiny.batch.labels

    def error(logits: Tensor) -> Tensor:
        return OBJECTIVES[kind.objective](logits, labels, **hyperparameters)

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels) + 0.7 * error(logits)

    slope = tiny.gradient(loss, tiny.parameters)
    torch.testing.assert_close(state.parameters, tiny.parameters - 0.1 * slope)
    logits = tiny.logits(tiny.parameters)
    torch.testing.assert_close(records["objective"], error(logits))
    torch.testing.assert_close(records["base"], F.cross_entropy(logits, labels))
    torch.testing.assert_close(records["loss"], loss(logits))


@pytest.mark.parametrize("name", MEMBERS)
def test_search_domains_lie_within_the_bounds(name: str) -> None:
    domains = METHODS[name].Hyperparameters.domains()
    assert {"lr", "beta", "base"} <= domains.keys()
    for hyperparameter, domain in domains.items():
        values = domain.values if isinstance(domain, Choice) else (domain.low, domain.high)
        for value in values:
            make_method(name, {hyperparameter: value})


def test_base_losses_agree_with_their_own_methods(rows: tuple[Tensor, Tensor]) -> None:
    logits, labels = rows
    gamma, epsilon = torch.tensor([2.0, 0.1], dtype=torch.double)
    numbers = {"base_gamma": gamma, "base_epsilon": epsilon}
    p = logits.softmax(-1)
    p_y = p[torch.arange(17), labels]
    below = torch.where(p < p_y[:, None], p, 0).amax(-1)
    gamma = torch.where(p_y < 0.2, 5.0, 3.0)
    expected = {
        "ce": F.cross_entropy(logits, labels),
        "focal": (-((1 - p_y) ** 2) * p_y.log()).mean(),
        "brier": (p - F.one_hot(labels, 4)).square().sum(-1).mean(),
        "label_smoothing": F.cross_entropy(logits, labels, label_smoothing=0.1),
        "flsd": (-((1 - p_y) ** gamma) * p_y.log()).mean(),
        "dual_focal": (-((1 - p_y + below) ** 2) * p_y.log()).mean(),
    }
    for name, value in expected.items():
        torch.testing.assert_close(base_loss(name, logits, labels, numbers), value)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_reach_every_base_loss(tiny, schedule: str) -> None:
    seen = []
    for base in ("ce", "focal", "brier", "label_smoothing", "flsd", "dual_focal"):
        state, records = tiny.step("mmce", {"base": base, "schedule": schedule})
        numbers = tiny.numbers(make_method("mmce", {}))
        logits = tiny.logits(tiny.parameters)
        value = base_loss(base, logits, tiny.batch.labels, numbers)  # type: ignore[arg-type]
        torch.testing.assert_close(records["base"], value)
        seen.append(state.parameters)
    assert len(torch.stack(seen).unique(dim=0)) == 6


def test_switch_is_the_base_to_the_bit_before_and_joint_after(make_tiny) -> None:
    tiny = make_tiny(optimiser=Adam())
    hyperparameters = {"beta": 5.0, "schedule": "switch", "switch_at": 0.4}
    base, _ = tiny.step("standard")
    joint, _ = tiny.step("mmce", {"beta": 5.0})
    before, records = tiny.step("mmce", hyperparameters, progress=0.39)
    after, _ = tiny.step("mmce", hyperparameters, progress=0.4)
    assert torch.equal(before.parameters, base.parameters)
    assert torch.equal(after.parameters, joint.parameters)
    assert not torch.equal(before.parameters, after.parameters)
    assert torch.equal(records["loss"], records["base"])


def test_interleaved_steps_on_training_then_on_held_out_data(tiny) -> None:
    hyperparameters = {"beta": 0.6, "schedule": "interleaved", "lr": 0.1, "weight_decay": 0.01}
    state, records = tiny.step("sb_ece", hyperparameters)
    batch = tiny.batch
    base = tiny.gradient(lambda x: F.cross_entropy(x, batch.labels), tiny.parameters)
    middle = tiny.parameters - 0.1 * (base + 0.01 * tiny.parameters)

    def error(logits: Tensor) -> Tensor:
        return OBJECTIVES["sb_ece"](logits, batch.held_out.labels)

    judged = tiny.gradient(error, middle, batch.held_out.inputs)
    torch.testing.assert_close(state.parameters, middle - 0.1 * 0.6 * judged)
    expected = error(tiny.logits(middle, batch.held_out.inputs))
    torch.testing.assert_close(records["objective"], expected)


def test_only_interleaved_asks_for_held_out_data_and_reads_it(tiny) -> None:
    other = tiny.batch._replace(
        held_out=tiny.batch.held_out._replace(labels=tiny.batch.held_out.labels.roll(1))
    )
    for schedule in SCHEDULES:
        hyperparameters = {"schedule": schedule}
        one, _ = tiny.step("mmce", hyperparameters)
        two, _ = tiny.step("mmce", hyperparameters, batch=other)
        reads = not torch.equal(one.parameters, two.parameters)
        assert (
            reads
            == make_method("mmce", hyperparameters).needs_held_out
            == (schedule == "interleaved")
        )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_batch_statistics_are_those_of_the_training_batch(make_tiny, schedule: str) -> None:
    tiny = make_tiny(batch_norm=True)
    base, _ = tiny.step("standard")
    state, _ = tiny.step("mmce", {"schedule": schedule})
    assert base.buffers.keys() == state.buffers.keys() != set()
    for name, value in base.buffers.items():
        assert torch.equal(value, state.buffers[name])


vectors = st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(vectors, st.floats(0, 10))
def test_balanced_gradient_never_works_against_the_base(
    pairs: list[tuple[float, float]], share: float
) -> None:
    base, other = torch.tensor(pairs, dtype=torch.double).T + 1e-3
    total = balanced(base, other, torch.tensor(share, dtype=torch.double))
    assert float(total @ base) >= float(base @ base) * (1 - 1e-9)
    if float(other @ base) >= 0:
        expected = base + share * base.norm() / other.norm() * other
        torch.testing.assert_close(total, expected)
    else:
        rest = total - base
        assert abs(float(rest @ base)) <= 1e-9 * (1 + share) * float(base @ base)
        across = other - (other @ base) / (base @ base) * base
        torch.testing.assert_close(rest, share * base.norm() / other.norm() * across)


def test_balanced_gradient_without_a_pull_is_the_base() -> None:
    base = torch.tensor([3.0, 4.0])
    assert torch.equal(balanced(base, torch.zeros(2), torch.tensor(0.5)), base)


@pytest.mark.parametrize("name", MEMBERS)
def test_balanced_steps_lower_the_base_loss_to_first_order(tiny, name: str) -> None:
    hyperparameters = {"schedule": "gradient_balanced", "gradient_share": 2.0, "lr": 0.05}
    method = make_method(name, hyperparameters)
    state, labels = tiny.start(method), tiny.batch.labels
    for _ in range(10):
        slope = tiny.gradient(lambda x: F.cross_entropy(x, labels), state.parameters)
        after, _ = tiny.step(name, hyperparameters, state=state)
        moved = state.parameters - after.parameters
        assert float(moved @ slope) >= 0.05 * float(slope @ slope) * (1 - 1e-9)
        assert float(moved.norm()) <= 0.05 * 3 * float(slope.norm()) * (1 + 1e-9)
        state = after
