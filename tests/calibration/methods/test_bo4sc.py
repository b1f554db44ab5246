"""BO4SC: its algorithm as printed, its tempered form, and what it leaves behind."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from calibration.bilevel import ENGINES
from calibration.data import PROTOCOLS, load_dataset
from calibration.methods import Batch, make_method
from calibration.methods.bo4sc import Bo4sc
from calibration.objectives import confidence_bce
from calibration.training import TrainingConfig, TrainingRun


def bo4sc_run(
    hyperparameters: dict, *, seed: int = 1, model: dict | None = None, **config: object
) -> TrainingRun:
    dataset = load_dataset("blobs-1.7", {"points": 200})
    method = make_method("bo4sc", {"lr": 0.01} | hyperparameters)
    settings = {"epochs": 20, "batch_size": "full", "stop_on": "none", "evaluate_every": 5}
    return TrainingRun(
        method,
        dataset.split(PROTOCOLS["bo4sc"], seed, held_out=True),
        model="mlp",
        model_options={"widths": [8]} | (model or {}),
        classes=dataset.classes,
        config=TrainingConfig.model_validate(settings | config),
        seed=seed,
    )


def test_algorithm_1_as_printed() -> None:
    run = bo4sc_run(
        {"as_printed": True, "inner_steps": 3, "outer_lr": 50.0, "sharpness": 20.0, "lr": 0.1},
        epochs=6,
    )
    start = run.state
    apply = run.learner.model.apply
    theta, weights = start.parameters.clone().double(), torch.ones(140, dtype=torch.double)
    inputs, labels = run.train.inputs.double(), run.train.labels
    for _ in range(2):
        w = weights.clone().requires_grad_()
        k = theta.clone().requires_grad_()
        for _ in range(3):
            ce = F.cross_entropy(
                apply(k, {}, inputs, training=True)[0].logits, labels, reduction="none"
            )
            (slope,) = torch.autograd.grad((w * ce).mean(), k, create_graph=True)
            k = k - 0.1 * slope
        held = run.validation
        logits = apply(k, {}, held.inputs.double(), training=False)[0].logits
        (hyper,) = torch.autograd.grad(confidence_bce(logits, held.labels, sharpness=20.0), w)
        weights, theta = (w - 50.0 * hyper).detach(), k.detach()
    while not run.done:
        run.run_epoch()
    torch.testing.assert_close(run.state.parameters.double(), theta, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(run.state.method["weights"].double(), weights, rtol=1e-4, atol=1e-6)
    assert float((weights - 1).abs().max()) > 1e-3
    assert run.state.optimiser["step"] == 0, "descent as printed must leave Adam alone"


def test_an_epoch_is_a_pass_whatever_the_inner_steps() -> None:
    run = bo4sc_run({"inner_steps": 8})
    while not run.done:
        run.run_epoch()
    assert [row["epoch"] for row in run.curve] == [8, 16, 20]
    assert all("validation/nll" in row for row in run.curve)
    assert run.state.optimiser["step"] == 20


def test_before_the_warm_epochs_are_over_it_is_standard_training() -> None:
    warm = bo4sc_run({"inner_steps": 2, "warm_share": 0.5}, epochs=20)
    dataset = load_dataset("blobs-1.7", {"points": 200})
    standard = TrainingRun(
        make_method("standard", {"lr": 0.01}),
        dataset.split(PROTOCOLS["bo4sc"], 1, held_out=False),
        model="mlp",
        model_options={"widths": [8]},
        classes=dataset.classes,
        config=TrainingConfig(epochs=20, batch_size="full", stop_on="none"),
        seed=1,
    )
    for _ in range(10):
        standard.run_epoch()
    for _ in range(5):
        warm.run_epoch()
    assert bool((warm.state.method["weights"] == 1).all())
    # Ten of Adam's steps, each about lr = 0.01 long. Adam divides a gradient by its size, so
    # that one of a ten-thousandth of the largest is known to three digits of float32's seven.
    torch.testing.assert_close(
        warm.state.parameters, standard.state.parameters, rtol=0, atol=10 * 0.01 * 1e-3
    )
    warm.run_epoch()
    assert bool((warm.state.method["weights"] != 1).any())


def test_weights_are_projected_or_not() -> None:
    settings = {"inner_steps": 1, "outer_lr": 500.0, "warm_share": 0.0}
    projected, free = bo4sc_run(settings), bo4sc_run(settings | {"project": False})
    for run in (projected, free):
        while not run.done:
            run.run_epoch()
    weights = projected.state.method["weights"]
    assert 0.0 <= float(weights.min()) < float(weights.max()) <= 1.0
    outside = free.state.method["weights"]
    assert bool(((outside < 0) | (outside > 1)).any())


def test_mini_batches_move_the_weights_of_their_own_rows() -> None:
    run = bo4sc_run({"inner_steps": 2, "warm_share": 0.0}, batch_size=32)
    seen = []
    original = run.method.steps

    def watched(learner, state, batches, numbers, generator):  # type: ignore[no-untyped-def]
        after, logs = original(learner, state, batches, numbers, generator)
        moved = (after.method["weights"] != state.method["weights"]).nonzero().flatten()
        rows = torch.cat([batch.rows for batch in batches])
        assert set(moved.tolist()) <= set(rows.tolist())
        seen.append((len(batches), len(moved)))
        return after, logs

    run.method.steps = watched  # type: ignore[method-assign]
    run.run_epoch()
    assert [count for count, _ in seen] == [2, 2, 1], "140 rows in batches of 32, in pairs"
    assert all(moved > 0 for _, moved in seen)
    assert run.epoch == 1


@pytest.mark.parametrize("engine", list(ENGINES))
def test_every_engine_can_drive_it(engine: str) -> None:
    def weights(chosen: str) -> torch.Tensor:
        run = bo4sc_run(
            {"inner_steps": 4, "warm_share": 0.0, "engine": chosen, "engine_terms": 4, "lr": 0.003}
        )
        run.run_epoch()
        assert not run.diverged
        return run.state.method["weights"]

    found = weights(engine)
    assert float((found - 1).abs().max()) > 1e-4
    if ENGINES[engine].exact or engine == "truncated":
        torch.testing.assert_close(found, weights("flat_unroll"), rtol=0, atol=2e-3)


def test_exact_engines_lead_to_the_same_weights_even_with_dropout() -> None:
    def weights(engine: str) -> torch.Tensor:
        run = bo4sc_run(
            {"inner_steps": 5, "warm_share": 0.0, "engine": engine},
            model={"dropout": 0.3},
            epochs=10,
        )
        while not run.done:
            run.run_epoch()
        return run.state.method["weights"]

    torch.testing.assert_close(weights("adjoint"), weights("flat_unroll"), rtol=0, atol=1e-4)


@pytest.mark.parametrize("batch_size", ["full", 64])
def test_statistics_of_the_inner_steps_are_kept(batch_size: str | int) -> None:
    def buffers(method: str, hyperparameters: dict, epochs: int) -> dict[str, torch.Tensor]:
        dataset = load_dataset("digits", {})
        run = TrainingRun(
            make_method(method, {"lr": 0.01} | hyperparameters),
            dataset.split(PROTOCOLS["honest"], 1, held_out=True),
            model="small_cnn",
            model_options={"channels": [4, 8]},
            classes=10,
            config=TrainingConfig(epochs=2, batch_size=batch_size, stop_on="none"),
            seed=1,
        )
        while run.epoch < epochs:
            run.run_epoch()
        return run.state.buffers

    expected = buffers("standard", {}, 2 if batch_size == "full" else 1)
    # The first window of weights moves nothing that the network sees before its next one.
    hyperparameters = {"inner_steps": 2 if batch_size == "full" else 20, "warm_share": 0.0}
    for engine in ("flat_unroll", "adjoint", "neumann"):
        found = buffers(
            "bo4sc", hyperparameters | {"engine": engine}, 2 if batch_size == "full" else 1
        )
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5)


def test_rows_of_a_small_last_batch_do_not_slow_the_others() -> None:
    """A weight's move is scaled by the size of its own batch, whatever the others' sizes."""
    run = bo4sc_run({"inner_steps": 4, "outer_lr": 0.01, "warm_share": 0.0}, batch_size=23)
    start = run.state.method["weights"]
    moves = []
    original = run.method.steps

    def watched(learner, state, batches, numbers, generator):  # type: ignore[no-untyped-def]
        after, logs = original(learner, state, batches, numbers, generator)
        change = (after.method["weights"] - state.method["weights"]).abs()
        moves.append([(len(b.rows), float(change[b.rows].mean())) for b in batches])
        return after, logs

    run.method.steps = watched  # type: ignore[method-assign]
    run.run_epoch()
    assert [[size for size, _ in window] for window in moves] == [[23] * 4, [23, 23, 2]]
    assert start.eq(1).all()
    assert moves[1][0][1] > 0.2 * moves[0][-1][1]


def test_an_overflowed_hypergradient_moves_nothing() -> None:
    method = make_method("bo4sc", {"project": False, "outer_lr": 1.0})
    weights = torch.ones(4)
    slope = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.01])
    rows = torch.arange(4)
    batch = Batch(rows[:, None], rows, rows)
    numbers = method.numbers(dtype=torch.float32, device=torch.device("cpu"))
    assert isinstance(method, Bo4sc)
    moved = method._moved(weights, slope, numbers, [batch])
    torch.testing.assert_close(moved, torch.tensor([1.0, 1.0, 1.0, 1 - 0.04]))


def test_the_history_ends_with_the_last_weights() -> None:
    run = bo4sc_run({"inner_steps": 4, "warm_share": 0.0}, epochs=205)
    while not run.done:
        run.run_epoch()
    assert run.history()["epoch"][-1] == 205
    assert torch.equal(run.history()["weights"][-1], run.state.method["weights"])


def test_the_history_of_the_weights_is_kept() -> None:
    run = bo4sc_run({"inner_steps": 4, "warm_share": 0.0}, epochs=24)
    while not run.done:
        run.run_epoch()
    history = run.history()
    assert history["epoch"].tolist() == [4, 8, 12, 16, 20, 24]
    assert history["weights"].shape == (6, 140)
    assert torch.equal(history["weights"][-1], run.state.method["weights"])


def test_long_unrolls_are_warned_of_and_capped() -> None:
    with pytest.warns(UserWarning, match="150 inner steps are chaotic"):
        make_method("bo4sc", {"inner_steps": 150})
    with pytest.raises(ValueError, match="inner_steps"):
        make_method("bo4sc", {"inner_steps": 201})
