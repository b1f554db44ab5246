"""BO4SC: its algorithm as printed, its options, and what it leaves behind."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from calibration.bilevel import ENGINES
from calibration.data import PROTOCOLS, Part, load_dataset
from calibration.methods import Batch, TrainState, make_method
from calibration.methods.bo4sc import Bo4sc
from calibration.objectives import confidence_bce, sece
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig


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


def in_double(run: TrainingRun) -> tuple[TrainState, Batch, dict[str, torch.Tensor]]:
    """The run's first state, its only batch and its numbers, to be stepped without rounding."""
    double = torch.double
    parameters = run.state.parameters.to(double)
    method = {name: value.to(double) for name, value in run.state.method.items()}
    state = TrainState(parameters, {}, run.learner.optimiser.initial(parameters), method)
    held = Part(run.validation.inputs.to(double), run.validation.labels)
    rows = torch.arange(len(run.train.labels))
    batch = Batch(run.train.inputs.to(double), run.train.labels, rows, held)
    numbers = run.method.numbers(dtype=double, device=torch.device("cpu"))
    return state, batch, numbers | {"progress": torch.zeros((), dtype=double)}


JUDGES = {
    "confidence_bce": lambda logits, labels: confidence_bce(logits, labels, sharpness=20.0),
    "nll": F.cross_entropy,
    "sece": sece,
}


@pytest.mark.parametrize(
    ("restart", "outer_optimiser", "judge", "inner"),
    [
        ("initial", "gd", "confidence_bce", "sgd"),  # Algorithm 1 to the letter
        ("initial", "adam", "nll", "adam"),
        ("warm", "adam", "confidence_bce", "adam"),
        ("warm", "gd", "sece", "adam"),
    ],
)
def test_it_takes_the_steps_of_an_unrolled_float64_program(
    restart: str, outer_optimiser: str, judge: str, inner: str
) -> None:
    """Three outer steps by autograd through every inner one, gd and Adam written out here."""
    rate = 0.4 if outer_optimiser == "gd" else 0.03
    options = {"restart": restart, "outer_optimiser": outer_optimiser, "outer_loss": judge}
    common = {"inner_steps": 4, "outer_lr": rate, "sharpness": 20.0, "lr": 0.02}
    run = bo4sc_run(
        options | common | {"warm_share": 0.0, "project": False}, optimiser=inner, momentum=0.0
    )
    state, batch, numbers = in_double(run)
    apply, optimiser, samples = run.learner.model.apply, run.learner.optimiser, len(batch.rows)
    still = torch.zeros((), dtype=torch.double)
    weights, moments = torch.ones(samples, dtype=torch.double), torch.zeros(2, samples).double()
    theta, memory = state.parameters, state.optimiser
    for outer_step in range(3):
        state, _ = run.method.steps(
            run.learner, state, [batch] * 4, numbers, torch.Generator().manual_seed(outer_step)
        )
        if restart == "initial":
            theta, memory = run.state.parameters.double(), optimiser.initial(theta)
        w, k = weights.clone().requires_grad_(), theta.clone().requires_grad_()
        for _ in range(4):
            logits = apply(k, {}, batch.inputs, training=True)[0].logits
            losses = F.cross_entropy(logits, batch.labels, reduction="none")
            (slope,) = torch.autograd.grad((w * losses).mean(), k, create_graph=True)
            k, memory = optimiser.update(k, slope, memory, lr=numbers["lr"], weight_decay=still)
        logits = apply(k, {}, batch.held_out.inputs, training=False)[0].logits
        (hyper,) = torch.autograd.grad(JUDGES[judge](logits, batch.held_out.labels), w)
        if outer_optimiser == "adam":
            slope = samples * hyper
            moments = torch.stack(
                [0.9 * moments[0] + 0.1 * slope, 0.999 * moments[1] + 0.001 * slope**2]
            )
            mean = moments[0] / (1 - 0.9 ** (outer_step + 1))
            square = moments[1] / (1 - 0.999 ** (outer_step + 1))
            weights = weights - rate * mean / ((square + 1e-16).sqrt() + 1e-8)
        else:
            weights = weights - rate * samples * hyper
        theta, memory = k.detach(), {name: value.detach() for name, value in memory.items()}
        torch.testing.assert_close(state.parameters, theta, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(state.method["weights"], weights, rtol=1e-6, atol=1e-8)
        assert 1e-3 < float((weights - 1).abs().max()) < outer_step + 1.0, "moved, and not cut"


@pytest.mark.parametrize("batch_size", ["full", 32])
def test_a_restart_takes_all_its_steps_even_where_batches_run_out(batch_size: int | str) -> None:
    run = bo4sc_run({"restart": "initial", "inner_steps": 8}, batch_size=batch_size)
    start = run.state.parameters
    run.run_epoch()
    assert run.epoch == (8 if batch_size == "full" else 1)
    while not run.done:
        run.run_epoch()
    assert run.epoch == 20
    assert run.state.optimiser["step"] == 8
    assert torch.equal(run.state.method["initial"], start)
    # Eight steps of Adam move a parameter by little more than eight rates of 0.01.
    assert 0.01 < float((run.state.parameters - start).abs().max()) < 0.12


def test_a_restart_begins_with_the_first_statistics_of_batch_norm() -> None:
    dataset = load_dataset("digits", {})
    run = TrainingRun(
        make_method("bo4sc", {"lr": 0.01, "restart": "initial", "inner_steps": 3}),
        dataset.split(PROTOCOLS["honest"], 1, held_out=True),
        model="small_cnn",
        model_options={"channels": [4, 8]},
        classes=10,
        config=TrainingConfig(epochs=2, batch_size=512, stop_on="none"),
        seed=1,
    )
    while not run.done:
        run.run_epoch()
    counts = [v for name, v in run.state.buffers.items() if name.endswith("num_batches_tracked")]
    assert counts
    assert all(int(count) == 3 for count in counts)


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


def test_adam_leaves_weights_of_other_rows_and_their_moments_alone() -> None:
    run = bo4sc_run(
        {"inner_steps": 2, "warm_share": 0.0, "outer_optimiser": "adam", "outer_lr": 0.01},
        batch_size=32,
    )
    original, seen = run.method.steps, torch.zeros(140)

    def watched(learner, state, batches, numbers, generator):  # type: ignore[no-untyped-def]
        after, logs = original(learner, state, batches, numbers, generator)
        rows = torch.cat([batch.rows for batch in batches])
        seen[rows] += 1
        others = torch.ones(140, dtype=torch.bool)
        others[rows] = False
        for name in ("weights", "weights_step", "weights_mean", "weights_square"):
            assert torch.equal(after.method[name][others], state.method[name][others])
        return after, logs

    run.method.steps = watched  # type: ignore[method-assign]
    for _ in range(3):
        run.run_epoch()
    assert torch.equal(run.state.method["weights_step"], seen)
    assert bool((seen == 3).all())
    # Adam's first three steps are at most about one rate long each, however small the slope.
    moved = 1 - run.state.method["weights"]
    assert 0.005 < float(moved.max()) < 0.04


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
    moved = method._moved({"weights": weights}, slope, numbers, [batch])
    torch.testing.assert_close(moved["weights"], torch.tensor([1.0, 1.0, 1.0, 1 - 0.04]))


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
