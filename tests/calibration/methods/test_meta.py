"""Meta-learned methods: the order of their steps, what must not leak, and γ-Net itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import ENGINES
from calibration.data import PROTOCOLS, load_dataset
from calibration.methods import METHODS, Batch, make_method
from calibration.methods.focal import focal_loss
from calibration.methods.gamma_net import LARGEST_GAMMA, bounded, gamma_net
from calibration.methods.meta import MetaMethod
from calibration.methods.side_variables import concern
from calibration.models import Output
from calibration.objectives import sece
from calibration.optimisers import Adam
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

META = [name for name in METHODS if issubclass(METHODS[name], MetaMethod)]


def meta_run(name: str, hyperparameters: dict | None = None, **config: object) -> TrainingRun:
    dataset = load_dataset("blobs-1.7", {"points": 200})
    settings = {"epochs": 4, "batch_size": 64, "stop_on": "none", "optimiser": "sgd"}
    return TrainingRun(
        make_method(name, {"lr": 0.05} | (hyperparameters or {})),
        dataset.split(PROTOCOLS["honest"], 1, held_out=True),
        model="mlp",
        model_options={"widths": [8]},
        classes=dataset.classes,
        config=TrainingConfig.model_validate(settings | config),
        seed=1,
    )


def one_step(
    run: TrainingRun, progress: float = 1.0
) -> tuple[Batch, dict[str, Tensor], dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    batch = next(iter(run.windows(generator)))[0]
    numbers = run.numbers | {"progress": torch.tensor(progress)}
    before = run.state
    with torch.no_grad():
        after, _ = run.method.step(run.learner, before, batch, numbers, generator)
    run.state = after
    return batch, before._asdict(), after._asdict()


def test_gamma_net_is_what_the_paper_says() -> None:
    generator = torch.Generator().manual_seed(0)
    x, a = torch.randn(6, 5, generator=generator), torch.randn(5, 3, generator=generator)
    w = torch.randn(5, generator=generator)
    q = torch.softmax(torch.einsum("nd,dk->nk", x, a), dim=1)
    attended = torch.einsum("nk,dk->nd", q, a)
    expected = torch.abs(torch.einsum("nd,d->n", attended, w)) / 0.1
    found = gamma_net(x, torch.cat([a.flatten(), w]), 3, torch.tensor(0.1))
    torch.testing.assert_close(found, expected)


def gamma_run(width: int, hyperparameters: dict, seed: int = 1) -> TrainingRun:
    dataset = load_dataset("digits", {})
    return TrainingRun(
        make_method("fl_gamma_sece", {"lr": 0.05, "outer_warmup": 0.0} | hyperparameters),
        dataset.split(PROTOCOLS["honest"], seed, held_out=True),
        model="mlp",
        model_options={"widths": [width]},
        classes=10,
        config=TrainingConfig(epochs=2, batch_size=64, stop_on="none", optimiser="sgd"),
        seed=seed,
    )


FORMS = [{}, *({"parametrisation": "paper", "tau": tau} for tau in (0.01, 0.1, 1.0))]


@pytest.mark.parametrize("form", FORMS)
def test_gamma_starts_at_one_in_every_form(form: dict) -> None:
    run = gamma_run(64, form | {"outer_lr": 1e-12, "weight_lr": 1e-12})
    batch, before, after = one_step(run)
    output, _ = run.learner.forward(before["parameters"], {}, batch.inputs, training=False)
    gamma = run.method.gamma(output, after["method"]["outer"], run.numbers)
    assert float(gamma.mean()) == pytest.approx(1.0, abs=1e-5)
    # In our form the rows start equal; in the paper's they depend on A a little.
    assert float(gamma.std()) < (0.1 if form else 1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("width", [64, 512])
@pytest.mark.parametrize("tau", [0.01, 1.0])
def test_the_first_step_moves_the_mean_gamma_by_the_outer_rate(
    width: int, tau: float, seed: int
) -> None:
    run = gamma_run(width, {"outer_lr": 0.05, "tau": tau}, seed)
    batch, before, after = one_step(run)
    output, _ = run.learner.forward(before["parameters"], {}, batch.inputs, training=False)
    gamma = run.method.gamma(output, after["method"]["outer"], run.numbers)
    assert abs(float(gamma.mean()) - 1.0) == pytest.approx(0.05, rel=0.2)


def test_the_bound_of_gamma_is_smooth_and_has_a_slope_everywhere() -> None:
    gamma = torch.cat([torch.zeros(1), torch.logspace(-3, 4, 200)]).requires_grad_()
    found = bounded(gamma)
    (slope,) = torch.autograd.grad(found.sum(), gamma)
    assert bool((slope > 0).all())
    assert bool((slope.diff() <= 0).all())
    assert bool((found <= LARGEST_GAMMA).all())
    small = gamma.detach() < 1
    torch.testing.assert_close(found.detach()[small], gamma.detach()[small], rtol=2e-3, atol=0)


@pytest.mark.parametrize("lookahead", ["head", "all"])
@pytest.mark.parametrize("form", FORMS[:2])
def test_the_outer_step_is_adam_along_the_gradient_through_a_unit_look_ahead(
    lookahead: str, form: dict
) -> None:
    own = {"lookahead": lookahead, "bandwidth": 0.1, "outer_beta2": 0.99, "outer_warmup": 0.0}
    run = meta_run("fl_gamma_sece", own | form)
    one_step(run)  # the first one scales γ-Net; look at the second
    batch, before, after = one_step(run)
    model, theta = run.learner.model, before["parameters"]
    outer = before["method"]["outer"].clone().requires_grad_()
    assert batch.held_out is not None

    def logits(parameters: Tensor, inputs: Tensor) -> Output:
        return model.apply(parameters, {}, inputs, training=False)[0]

    leaf = theta.clone().requires_grad_()
    shown = logits(leaf, batch.inputs)
    tau = torch.tensor(0.01 if form else 1.0)
    gamma = gamma_net(shown.features.detach(), outer, 5, tau)
    gamma = gamma if form else gamma / torch.sqrt(1 + gamma**2 / 400)
    loss = focal_loss(shown.logits, batch.labels, gamma).mean()
    (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
    if lookahead == "head":
        below = min(model.slices[name].start for name in model.head)
        slope = torch.cat([torch.zeros(below), slope[below:]])
    judged = logits(theta - 0.05 * slope, batch.held_out.inputs).logits
    value = sece(judged, batch.held_out.labels, bandwidth=0.1)
    (hyper,) = torch.autograd.grad(value, outer)
    moments = {k: before["method"][f"outer_{k}"] for k in ("step", "mean", "square")}
    lr = 1e-5 if form else 0.03 * before["method"]["gain"]
    expected, _ = Adam(beta2=0.99).update(
        outer.detach(), hyper / 0.05, moments, lr=lr, weight_decay=torch.tensor(0.0)
    )
    torch.testing.assert_close(after["method"]["outer"], expected, rtol=1e-4, atol=1e-6)


def test_a_lower_learning_rate_does_not_shrink_the_hypergradient() -> None:
    """Per unit of a vanishing look-ahead step it has a limit; the step itself shrank tenfold."""

    def hypergradient(lr: float) -> Tensor:
        run = meta_run("fl_gamma", {"lr": lr})
        _, _, after = one_step(run)
        return after["method"]["outer_mean"]

    larger, smaller = hypergradient(1e-2), hypergradient(1e-3)
    assert float((larger - smaller).norm() / smaller.norm()) < 0.05


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (0.9, 1.0)])
def test_the_outer_rate_rises_over_the_warm_up(progress: float, share: float) -> None:
    def moved(warmup: float) -> Tensor:
        run = meta_run("meta_label_smoothing", {"outer_warmup": warmup})
        before = run.state.method["outer"]
        _, _, after = one_step(run, progress)
        return after["method"]["outer"] - before

    assert float(moved(0.0)) != 0
    torch.testing.assert_close(moved(0.5), share * moved(0.0), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(("asked", "found"), [(10, 10), (512, 30)])
def test_the_outer_loss_sees_as_many_held_out_rows_as_asked_for(asked: int, found: int) -> None:
    batch, _, _ = one_step(meta_run("fl_gamma_sece", {"outer_batch": asked}, batch_size=16))
    assert batch.held_out is not None
    assert len(batch.held_out.labels) == found


@pytest.mark.parametrize("name", META)
def test_hypergradients_and_adams_steps_are_recorded(name: str) -> None:
    run = meta_run(name, {"outer_warmup": 0.5}, epochs=2)
    first, second = run.run_epoch(), run.run_epoch()
    for row in (first, second):
        assert row["train/outer_gradient_mean"] > 0
        assert row["train/outer_gradient_std"] >= 0
    assert first["train/outer_step_mean"] == 0  # nothing moves as the warm-up begins
    assert 0 < second["train/outer_step_mean"] < 1 / 0.1**0.5  # Adam's bound is 1/√(1 − β2)
    assert run.method.watched[0] in {key.removeprefix("train/") for key in first}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, 1.5, 3.0], "γ goes from 1 to 3 within 6 steps and would explode; lower rate"),
        ([1.0, 0.8, 0.4], "would explode"),
        ([1.0, 1.0001, 1.0001], "γ is frozen at 1, all 100 steps could change it by 0.3%; raise r"),
        ([1.0, 1.02, 1.01], ""),
        ([1.0, 1.0, 1.01], ""),  # a warm-up's first epoch
    ],
)
def test_a_short_try_tells_what_explodes_and_what_is_frozen(values: list, words: str) -> None:
    found = concern("γ", values, tried=6, steps=100, rate="rate")
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize("name", META)
@pytest.mark.parametrize("lookahead", ["head", "all"])
def test_no_gradient_of_the_outer_loss_reaches_the_network(name: str, lookahead: str) -> None:
    """The real step is that of the inner loss with the new outer variables held constant.

    A leak of the outer loss into the network's gradient (left there by a shared backward
    pass), or of γ's own dependence on the features, would show as another update.
    """
    run = meta_run(name, {"lookahead": lookahead, "outer_lr": 0.01})
    one_step(run)
    batch, before, after = one_step(run)
    method, model = run.method, run.learner.model
    assert isinstance(method, MetaMethod)
    theta = before["parameters"].clone().requires_grad_()
    outer = after["method"]["outer"].detach()
    output = model.apply(theta, {}, batch.inputs, training=True)[0]
    if name.startswith("fl_gamma"):
        gamma = bounded(gamma_net(output.features.detach(), outer, 5, torch.tensor(1.0)))
        loss = focal_loss(output.logits, batch.labels, gamma.detach()).mean()
    elif name == "meta_label_smoothing":
        epsilon = float(0.5 * outer.sigmoid()[0])
        loss = F.cross_entropy(output.logits, batch.labels, label_smoothing=epsilon)
    else:
        head = model.unflatten(theta)[model.head[0]]
        penalty = (outer.exp() * head.square().sum(0)).sum()
        loss = F.cross_entropy(output.logits, batch.labels) + penalty
    (slope,) = torch.autograd.grad(loss, theta)
    velocity = 0.9 * before["optimiser"]["velocity"] + slope
    expected = (theta - 0.05 * velocity).detach()
    torch.testing.assert_close(after["parameters"], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", META)
def test_the_meta_network_is_gone_at_inference(name: str) -> None:
    run = meta_run(name)
    while not run.done:
        run.run_epoch()
    stored = run.network()
    assert stored["method"] == {}
    spoilt = run.best.method | {"outer": torch.full_like(run.best.method["outer"], torch.nan)}
    before = run.predict_validation()
    run.best = run.best._replace(method=spoilt)
    assert torch.equal(run.predict_validation(), before)
    size = sum(p.numel() for p in run.learner.model.unflatten(stored["parameters"]).values())
    assert size == 2 * 8 + 8 + 8 * 5 + 5


@pytest.mark.parametrize("name", META)
@pytest.mark.parametrize("engine", list(ENGINES))
def test_every_engine_can_drive_every_meta_method(name: str, engine: str) -> None:
    """One look-ahead step is one step: engines that are exact over one must agree."""

    def outer(chosen: str, outer_lr: float) -> Tensor:
        run = meta_run(name, {"engine": chosen, "engine_terms": 2, "outer_lr": outer_lr})
        one_step(run)
        one_step(run)
        return run.state.method["outer"]

    found = outer(engine, 1e-3)
    assert bool(found.isfinite().all())
    assert not torch.equal(found, outer(engine, 1e-12)), "nothing was learned"
    if ENGINES[engine].exact or engine == "truncated":
        torch.testing.assert_close(found, outer("flat_unroll", 1e-3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lookahead", ["head", "all"])
@pytest.mark.parametrize("name", [*META, "multi_objective", "joint_beta"])
def test_statistics_of_the_look_ahead_are_discarded(name: str, lookahead: str) -> None:
    """After one step BatchNorm has seen the training batch once, and nothing else."""

    def buffers(method: str, hyperparameters: dict) -> dict[str, Tensor]:
        dataset = load_dataset("digits", {})
        run = TrainingRun(
            make_method(method, {"lr": 0.05} | hyperparameters),
            dataset.split(PROTOCOLS["honest"], 1, held_out=True),
            model="small_cnn",
            model_options={"channels": [4, 8]},
            classes=10,
            config=TrainingConfig(epochs=2, batch_size=32, stop_on="none", optimiser="sgd"),
            seed=1,
        )
        return one_step(run)[2]["buffers"]

    hyperparameters = {
        "multi_objective": {"weighting": "meta", "calibration": "mmce"},
        "joint_beta": {},
    }.get(name, {"lookahead": lookahead})
    expected = buffers("standard", {})
    found = buffers(name, hyperparameters)
    assert found.keys() == expected.keys() != set()
    for key, value in expected.items():
        # The same mean and variance in float32, though inside another differentiation.
        torch.testing.assert_close(found[key], value, msg=key)


def test_engines_can_be_named_by_import_path() -> None:
    method = make_method("fl_gamma", {"engine": "calibration.bilevel.adjoint:Adjoint"})
    assert method.hyperparameters.engine == "calibration.bilevel.adjoint:Adjoint"
    with pytest.raises(ValueError, match=r"engine.*did you mean 'adjoint'"):
        make_method("fl_gamma", {"engine": "adjiont"})


def test_data_split_without_held_out_rows_is_refused() -> None:
    dataset = load_dataset("blobs-1.7", {"points": 200})
    with pytest.raises(ValueError, match="splits: FocalGamma learns on held-out data"):
        TrainingRun(
            make_method("fl_gamma", {}),
            dataset.split(PROTOCOLS["honest"], 1, held_out=False),
            model="mlp",
            model_options={},
            classes=5,
            config=TrainingConfig(epochs=1),
            seed=0,
        )


def test_gamma_statistics_are_recorded_on_validation_data() -> None:
    run = meta_run("fl_gamma_sece", {"outer_lr": 0.01}, epochs=6)
    while not run.done:
        run.run_epoch()
    for row in run.curve:
        assert row["train/gamma_mean"] > 0
        assert row["validation/gamma_std"] >= 0
    output, _ = run.learner.forward(run.state.parameters, {}, run.validation.inputs, training=False)
    gamma = bounded(gamma_net(output.features, run.state.method["outer"], 5, torch.tensor(1.0)))
    assert run.curve[-1]["validation/gamma_mean"] == pytest.approx(float(gamma.mean()), rel=1e-5)
    assert run.curve[-1]["validation/gamma_std"] == pytest.approx(
        float(gamma.std(unbiased=False)), rel=1e-4, abs=1e-6
    )


def test_a_network_without_a_linear_head_is_refused_with_reasons() -> None:
    dataset = load_dataset("digits", {})
    with pytest.raises(ValueError, match=r"last layer is an nn\.Linear"):
        TrainingRun(
            make_method("fl_gamma", {}),
            dataset.split(PROTOCOLS["honest"], 1, held_out=True),
            model="tests.calibration.methods.test_meta:convolution_only",
            model_options={},
            classes=10,
            config=TrainingConfig(epochs=1),
            seed=0,
        )


def convolution_only(input_shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(input_shape[0], classes, 8), torch.nn.Flatten())
