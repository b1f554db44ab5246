"""The epoch loop: determinism, resuming to the bit, stopping rules, purity of the step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from calibration.augmentation import crop_and_flip
from calibration.data import PROTOCOLS, Splits, load_dataset
from calibration.methods import METHODS, Batch, LossMethod, make_method
from calibration.models import build_model
from calibration.seeds import derive_seed, seeded
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

MLP = {"widths": (16, 16)}
LOSSES = [name for name in METHODS if issubclass(METHODS[name], LossMethod)]


def splits(name: str = "blobs-1.7", seed: int = 0) -> Splits:
    dataset = load_dataset(name, {})
    return dataset.split(PROTOCOLS["honest"], seed, held_out=False)


def make_run(
    *,
    method: str = "standard",
    data: str = "blobs-1.7",
    model: str = "mlp",
    options: dict[str, Any] | None = None,
    classes: int = 5,
    seed: int = 3,
    hyperparameters: dict[str, Any] | None = None,
    **config: Any,
) -> TrainingRun:
    return TrainingRun(
        make_method(method, hyperparameters or {}),
        splits(data, seed),
        model=model,
        model_options=MLP if options is None else options,
        classes=classes,
        config=TrainingConfig(**({"epochs": 6} | config)),
        seed=seed,
    )


def trained(run: TrainingRun) -> TrainingRun:
    while not run.done:
        run.run_epoch()
    return run


def assert_same(one: Any, other: Any) -> None:
    """Equality to the bit through nested dictionaries and lists."""
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one.keys() - {"seconds"}:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert one == other


CASES = {
    "full batch": {"batch_size": "full"},
    "adamw, clipped, averaged": {
        "optimiser": "adamw",
        "clip_norm": 0.5,
        "ema_decay": 0.9,
        "warmup_epochs": 2,
    },
    "mini-batches, sgd, cosine": {"batch_size": 64, "optimiser": "sgd", "schedule": "cosine"},
    "dropout": {"options": {"widths": (16,), "dropout": 0.4}},
    "batch norm, augmentation": {
        "data": "digits",
        "model": "small_cnn",
        "options": {},
        "classes": 10,
        "augmentation": "crop_flip",
        "epochs": 4,
    },
    "refinement": {"stop_on": "refinement", "batch_size": "full"},
}


@pytest.mark.parametrize("case", CASES)
def test_resuming_from_any_epoch_is_exact_to_the_bit(case: str, tmp_path) -> None:
    whole = make_run(**CASES[case])
    states = []
    while not whole.done:
        states.append(whole.state_dict())
        whole.run_epoch()
    cut = len(states) // 2
    torch.save(states[cut], tmp_path / "checkpoint.pt")
    torch.manual_seed(99)  # whatever the global generator holds must not matter
    resumed = make_run(**CASES[case])
    resumed.load_state_dict(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    assert resumed.epoch == cut
    trained(resumed)
    assert_same(whole.state_dict(), resumed.state_dict())


def test_a_seed_fixes_everything_and_another_seed_changes_it() -> None:
    one, same, other = (trained(make_run(seed=s, batch_size=64)) for s in (1, 1, 2))
    assert_same(one.state_dict(), same.state_dict())
    assert not torch.equal(one.state.parameters, other.state.parameters)


def test_training_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained(make_run(options={"widths": (8,), "dropout": 0.5}))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_full_batch_training_agrees_with_a_plain_torch_loop(optimiser: str) -> None:
    values = {"lr": 0.05, "weight_decay": 1e-3}
    run = make_run(
        optimiser=optimiser, batch_size="full", epochs=20, stop_on="none", hyperparameters=values
    )
    data = splits(seed=3)
    inputs, labels = data.transform(data.train.inputs), data.train.labels
    with seeded(3, "initialisation"):
        module = build_model("mlp", MLP, inputs.shape[1:], 5)
    if optimiser == "adam":
        reference: torch.optim.Optimizer = torch.optim.Adam(module.parameters(), **values)
    else:
        reference = torch.optim.SGD(module.parameters(), momentum=0.9, **values)
    losses = []
    for _ in range(20):
        reference.zero_grad()
        loss = F.cross_entropy(module(inputs).logits, labels)
        loss.backward()
        reference.step()
        losses.append(float(loss.detach()))
    trained(run)
    assert [row["train/loss"] for row in run.curve] == pytest.approx(losses, rel=1e-4)
    expected = F.cross_entropy(
        module.eval()(data.transform(data.validation.inputs)).logits, data.validation.labels
    )
    assert run.curve[-1]["validation/nll"] == pytest.approx(float(expected.detach()), rel=1e-4)


def test_warm_up_clipping_and_averaging_agree_with_a_plain_torch_loop() -> None:
    values = {"lr": 0.05, "weight_decay": 0.1}
    run = make_run(
        batch_size="full",
        epochs=20,
        stop_on="none",
        schedule="cosine",
        warmup_epochs=4,
        clip_norm=0.3,
        ema_decay=0.8,
        hyperparameters=values | {"optimiser": "adamw"},
    )
    data = splits(seed=3)
    inputs, labels = data.transform(data.train.inputs), data.train.labels
    with seeded(3, "initialisation"):
        module = build_model("mlp", MLP, inputs.shape[1:], 5)
    reference = torch.optim.AdamW(module.parameters(), **values)
    schedules = torch.optim.lr_scheduler
    rising = schedules.LinearLR(reference, start_factor=1 / 5, total_iters=4)
    falling = schedules.CosineAnnealingLR(reference, T_max=20)
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    average.update_parameters(module)
    rates, lengths = [], []
    for _ in range(20):
        rates.append(reference.param_groups[0]["lr"])
        reference.zero_grad()
        F.cross_entropy(module(inputs).logits, labels).backward()
        lengths.append(float(torch.nn.utils.clip_grad_norm_(module.parameters(), 0.3)))
        reference.step()
        average.update_parameters(module)
        rising.step()
        falling.step()
    assert min(lengths) < 0.3 < max(lengths), "some steps are to be clipped, and some not"
    trained(run)
    assert [row["train/lr"] for row in run.curve] == pytest.approx(rates, rel=1e-5)
    expected = average.eval()(data.transform(data.validation.inputs)).logits
    torch.testing.assert_close(run.predict_validation(), expected.detach(), rtol=1e-3, atol=1e-4)
    assert run.curve[-1]["validation/nll"] == pytest.approx(
        float(F.cross_entropy(expected, data.validation.labels).detach()), rel=1e-4
    )


@pytest.mark.parametrize("ties", ["nll", "latest"])
def test_of_equally_good_epochs_the_setting_says_which_is_kept(ties: str) -> None:
    run = trained(make_run(stop_on="error", stop_ties=ties, epochs=60, data="iris", classes=3))
    least = min(row["validation/error"] for row in run.curve)
    tied = [row for row in run.curve if row["validation/error"] == least]
    assert len(tied) > 1, "nothing to decide"
    breaks = {"nll": lambda row: row["validation/nll"], "latest": lambda row: -row["epoch"]}
    assert run.best_epoch == min(tied, key=breaks[ties])["epoch"]


@pytest.mark.parametrize("rule", ["nll", "error", "refinement"])
def test_the_best_weights_are_the_ones_that_predict(rule: str) -> None:
    run = trained(make_run(stop_on=rule, epochs=40, batch_size="full", hyperparameters={"lr": 0.1}))
    scores = [row[f"validation/{rule}"] for row in run.curve]
    assert run.best_epoch == 1 + scores.index(min(scores))
    assert run.best_score[0] == min(scores)
    data = splits(seed=3)
    logits = run.predict(data.validation).double()
    measured = float(F.cross_entropy(logits, data.validation.labels))
    # Float32 logits, good to about 1e-6; another epoch's NLL differs in the third digit.
    assert measured == pytest.approx(run.curve[run.best_epoch - 1]["validation/nll"], rel=1e-5)


def test_without_a_stopping_rule_the_last_weights_count() -> None:
    run = trained(make_run(stop_on="none", epochs=7, evaluate_every=3))
    assert run.best_epoch == 7
    assert torch.equal(run.best.parameters, run.state.parameters)
    assert [row["epoch"] for row in run.curve if "validation/nll" in row] == [3, 6, 7]


def test_patience_stops_as_many_epochs_after_the_best() -> None:
    run = trained(
        make_run(
            stop_on="nll", patience=10, epochs=2000, batch_size="full", hyperparameters={"lr": 0.1}
        )
    )
    assert run.epoch == run.best_epoch + 10 < 2000


def test_a_diverged_run_says_so_and_stops() -> None:
    run = make_run(optimiser="sgd", epochs=500, hyperparameters={"lr": 10.0, "weight_decay": 1.0})
    trained(run)
    assert run.diverged
    assert run.epoch < 500


def test_schedules_follow_their_formulas() -> None:
    cosine = TrainingConfig(epochs=10, schedule="cosine")
    assert cosine.lr_factor(0) == 1
    assert cosine.lr_factor(5) == pytest.approx(0.5)
    assert cosine.lr_factor(9) == pytest.approx(0.5 * (1 + math.cos(0.9 * math.pi)))
    step = TrainingConfig(epochs=350, schedule="step", milestones=(150 / 350, 250 / 350))
    assert [step.lr_factor(e) for e in (0, 149, 150, 249, 250, 349)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    run = trained(make_run(epochs=4, schedule="cosine", hyperparameters={"lr": 0.5}))
    assert [row["train/lr"] for row in run.curve] == pytest.approx(
        [0.5 * TrainingConfig(epochs=4, schedule="cosine").lr_factor(e) for e in range(4)]
    )


@pytest.mark.parametrize("method", LOSSES)
def test_one_step_can_be_batched_over_trials(method: str) -> None:
    """Several trials of one shape stepped at once under vmap equal each stepped alone."""
    runs = [make_run(method=method, seed=s, batch_size="full") for s in (0, 1, 2)]
    rates = torch.tensor([0.001, 0.01, 0.1])
    data = runs[0].train
    batch = Batch(data.inputs, data.labels, torch.arange(len(data.labels)))
    generator = torch.Generator()

    def step(parameters: Tensor, lr: Tensor) -> Tensor:
        run = runs[0]
        state = run.state._replace(
            parameters=parameters, optimiser=run.learner.optimiser.initial(parameters)
        )
        after, _ = run.method.step(run.learner, state, batch, run.numbers | {"lr": lr}, generator)
        return after.parameters

    stacked = torch.stack([run.state.parameters for run in runs])
    together = torch.vmap(step)(stacked, rates)
    alone = torch.stack([step(p, lr) for p, lr in zip(stacked, rates, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", LOSSES)
def test_one_step_can_be_differentiated_in_its_hyperparameters(method: str) -> None:
    """d(parameters after a step)/d(learning rate), by autograd and by finite differences."""
    run = make_run(method=method, batch_size="full", optimiser="sgd")
    batch = Batch(run.train.inputs.double(), run.train.labels, torch.arange(700))
    state = run.state._replace(
        parameters=run.state.parameters.double(),
        optimiser={k: v.double() for k, v in run.state.optimiser.items()},
    )
    numbers = {k: v.double() for k, v in run.numbers.items()}
    generator = torch.Generator()

    def two_steps(decay: Tensor) -> Tensor:
        after = state
        for _ in range(2):
            changed = numbers | {"weight_decay": decay}
            after, _ = run.method.step(run.learner, after, batch, changed, generator)
        return after.parameters[:20]

    decay = torch.tensor(0.05, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(two_steps, (decay,))
    with torch.no_grad():
        torch.testing.assert_close(two_steps(decay), two_steps(decay.detach()))


def test_mixed_precision_trains_to_nearly_the_same_loss() -> None:
    single, mixed = (trained(make_run(mixed_precision=m, epochs=30)) for m in (False, True))
    assert not torch.equal(single.state.parameters, mixed.state.parameters)
    assert mixed.curve[-1]["validation/nll"] == pytest.approx(
        single.curve[-1]["validation/nll"], abs=0.05
    )


def test_crop_and_flip_moves_whole_images() -> None:
    images = torch.arange(1, 2 * 3 * 6 * 6 + 1, dtype=torch.uint8).reshape(2, 3, 6, 6)
    generator = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(60):
        moved = crop_and_flip(images, generator, padding=1)
        assert moved.shape == images.shape
        assert moved.dtype == torch.uint8
        for image, result in zip(images, moved, strict=True):
            padded = F.pad(image, (1, 1, 1, 1))
            candidates = {
                (dy, dx, mirrored): (
                    padded[:, dy : dy + 6, dx : dx + 6].flip(-1)
                    if mirrored
                    else padded[:, dy : dy + 6, dx : dx + 6]
                )
                for dy in range(3)
                for dx in range(3)
                for mirrored in (False, True)
            }
            matches = [k for k, c in candidates.items() if torch.equal(c, result)]
            assert len(matches) == 1
            seen.add(matches[0])
    assert len(seen) == 18  # 3 × 3 offsets, mirrored or not: all of them occur


def test_seeds_of_different_purposes_differ() -> None:
    drawn = {derive_seed(s, *p) for s in range(20) for p in (("a",), ("b",), ("a", 1), ("a", 2))}
    assert len(drawn) == 80
    assert max(drawn) < 2**63
