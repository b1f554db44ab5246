"""Joint beta calibration: the map, its fit on held-out data, and that predictions use it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.data import PROTOCOLS, load_dataset
from calibration.methods import make_method
from calibration.methods.joint_beta import beta_logits, log_complements
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig


def test_two_classes_are_beta_calibration() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(50, 2, generator=generator, dtype=torch.double)
    a, b, c = coefficients = torch.rand(3, 2, generator=generator, dtype=torch.double)
    p = logits.softmax(-1)[:, 0]
    score = (a[0] + b[1]) * p.log() - (b[0] + a[1]) * (1 - p).log() + c[0] - c[1]
    torch.testing.assert_close(beta_logits(logits, coefficients).softmax(-1)[:, 0], score.sigmoid())


def test_it_starts_as_the_identity(tiny, rows: tuple[Tensor, Tensor]) -> None:
    start = make_method("joint_beta", {}).initial(tiny.learner, tiny.parameters)
    logits = rows[0][:, :3]
    torch.testing.assert_close(beta_logits(logits, start["map"]).softmax(-1), logits.softmax(-1))


def test_complements_are_exact_and_always_finite(rows: tuple[Tensor, Tensor]) -> None:
    log_p = rows[0].log_softmax(-1)
    torch.testing.assert_close(log_complements(log_p), (1 - log_p.exp()).log())
    certain = torch.tensor([[30.0, 0.0], [1e4, 0.0], [0.0, 0.0]])
    found = log_complements(certain.log_softmax(-1))
    torch.testing.assert_close(found[:, 0], torch.tensor([-30.0, -1e4, -0.6931472]))
    torch.testing.assert_close(found[:, 1], torch.tensor([0.0, 0.0, -0.6931472]))


def test_the_map_is_differentiable_in_logits_and_coefficients(rows: tuple[Tensor, Tensor]) -> None:
    coefficients = torch.rand(3, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    inputs = (rows[0].requires_grad_(), coefficients.requires_grad_())
    assert torch.autograd.gradcheck(beta_logits, inputs)
    assert torch.autograd.gradgradcheck(beta_logits, inputs)
    saturated = (1e4 * torch.eye(3)).requires_grad_()
    loss = F.cross_entropy(beta_logits(saturated, torch.ones(3, 3)), torch.tensor([1, 2, 0]))
    (slope,) = torch.autograd.grad(loss, saturated)
    assert bool(slope.isfinite().all())


def test_the_network_descends_through_a_map_held_still(tiny) -> None:
    method = make_method("joint_beta", {"lr": 0.1})
    skewed = torch.tensor([[0.5, 1.0, 2.0], [0.3, 0.0, 0.1], [0.0, 1.0, -1.0]]).double()
    start = tiny.start(method)
    start = start._replace(method=start.method | {"map": skewed})
    state, records = tiny.step("joint_beta", {"lr": 0.1}, state=start)

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(beta_logits(logits, skewed), tiny.batch.labels)

    expected = tiny.parameters - 0.1 * tiny.gradient(loss, tiny.parameters)
    torch.testing.assert_close(state.parameters, expected)
    torch.testing.assert_close(records["loss"], loss(tiny.logits(tiny.parameters)))


@pytest.mark.parametrize("steps", [1, 3])
def test_the_map_follows_adam_on_the_held_out_likelihood(tiny, steps: int) -> None:
    hyperparameters = {"lr": 0.1, "map_lr": 0.05, "map_steps": steps}
    state, _ = tiny.step("joint_beta", hyperparameters)
    logits = tiny.logits(state.parameters, tiny.batch.held_out.inputs)
    leaf = torch.tensor([[1.0], [0.0], [0.0]]).double().repeat(1, 3).requires_grad_()
    oracle = torch.optim.Adam([leaf], lr=0.05)
    for _ in range(steps):
        oracle.zero_grad()
        F.cross_entropy(beta_logits(logits, leaf), tiny.batch.held_out.labels).backward()
        oracle.step()
        with torch.no_grad():
            leaf[:2].clamp_(min=0)
    torch.testing.assert_close(state.method["map"], leaf.detach())


def test_an_over_confident_network_is_tamed(tiny) -> None:
    # Parameters 8 times too large, and a learning rate that leaves them alone.
    hyperparameters = {"lr": 1e-12, "map_lr": 0.05, "map_steps": 20}
    state = tiny.start(make_method("joint_beta", hyperparameters))._replace(
        parameters=8 * tiny.parameters
    )
    held_out = tiny.batch.held_out

    def held_out_nll() -> float:
        logits = tiny.logits(state.parameters, held_out.inputs)
        return float(F.cross_entropy(beta_logits(logits, state.method["map"]), held_out.labels))

    before = held_out_nll()
    for _ in range(10):
        state, _ = tiny.step("joint_beta", hyperparameters, state=state)
    assert before > 2.0
    assert held_out_nll() < 1.1  # the labels are noise: log 3 is about the best there is
    assert bool((state.method["map"][:2] >= 0).all())


def test_predictions_are_made_from_the_mapped_output() -> None:
    dataset = load_dataset("blobs-1.7", {})
    method = make_method("joint_beta", {"map_lr": 0.1})
    assert method.needs_held_out
    run = TrainingRun(
        method,
        dataset.split(PROTOCOLS["honest"], 0, held_out=True),
        model="mlp",
        model_options={"widths": (8,)},
        classes=5,
        config=TrainingConfig(epochs=3, stop_on="none"),
        seed=0,
    )
    while not run.done:
        run.run_epoch()
    output, _ = run.learner.forward(
        run.state.parameters, run.state.buffers, run.validation.inputs, training=False
    )
    assert not torch.equal(run.predict_validation(), output.logits)
    expected = beta_logits(output.logits, run.state.method["map"])
    torch.testing.assert_close(run.predict_validation(), expected)
    assert run.network()["method"].keys() == {"map"}
