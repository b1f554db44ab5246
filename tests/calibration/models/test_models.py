"""Models: published sizes, the registry, and a module as a pure function of its parameters."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev, vmap
from torch.nn.functional import cross_entropy

from calibration.models import MODELS, FunctionalModel, Output, WithFeatures, build_model


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def parameter_count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# --- the registered architectures -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("resnet18", 11_173_962),
        ("resnet34", 21_282_122),
        ("resnet50", 23_520_842),
        ("wide_resnet", 36_479_194),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, published: int) -> None:
    assert parameter_count(build_model(name, {}, (3, 32, 32), 10)) == published


@pytest.mark.parametrize(
    ("depth", "widen", "published_millions"),
    [(16, 8, 11.0), (22, 8, 17.2), (40, 4, 8.9)],
)
def test_wide_resnets_have_the_sizes_of_the_papers_table(
    depth: int, widen: int, published_millions: float
) -> None:
    with torch.device("meta"):
        model = build_model("wide_resnet", {"depth": depth, "widen": widen}, (3, 32, 32), 10)
    assert parameter_count(model) / 1e6 == pytest.approx(published_millions, abs=0.07)


def test_mlp_has_the_layers_asked_for() -> None:
    model = build_model("mlp", {"widths": [64, 64]}, (2,), 5)
    assert parameter_count(model) == (2 * 64 + 64) + (64 * 64 + 64) + (64 * 5 + 5)
    assert parameter_count(build_model("mlp", {"widths": []}, (4, 3), 2)) == 12 * 2 + 2


@pytest.mark.parametrize(
    ("name", "options", "shape", "width"),
    [
        ("mlp", {}, (2,), 64),
        ("mlp", {"widths": [7], "activation": "tanh", "dropout": 0.5}, (3, 5, 5), 7),
        ("small_cnn", {}, (1, 8, 8), 128),
        ("small_cnn", {"channels": [4, 6], "dropout": 0.1}, (3, 64, 64), 6),
        ("resnet18", {}, (3, 32, 32), 512),
        ("resnet18", {}, (3, 64, 64), 512),
        ("resnet34", {}, (1, 16, 16), 512),
        ("resnet50", {}, (3, 32, 32), 2048),
        ("wide_resnet", {"depth": 10, "widen": 1, "dropout": 0.3}, (3, 64, 64), 64),
    ],
)
def test_logits_are_the_last_layer_of_the_features(
    name: str, options: dict[str, Any], shape: tuple[int, ...], width: int
) -> None:
    model = build_model(name, options, shape, 5).eval()
    with torch.no_grad():
        output = model(torch.randn(2, *shape))
        heads = [m for m in model.modules() if isinstance(m, nn.Linear)]
        assert output.features.shape == (2, width)
        torch.testing.assert_close(output.logits, heads[-1](output.features))
    assert output.logits.shape == (2, 5)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "wide_resnet"])
def test_residual_networks_halve_the_image_at_the_later_stages_only(name: str) -> None:
    options = {"depth": 10, "widen": 1} if name == "wide_resnet" else {}
    model = build_model(name, options, (3, 32, 32), 10).eval()
    sides = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3):
            module.register_forward_hook(lambda _m, _i, out: sides.append(out.shape[-1]))
    with torch.no_grad():
        model(torch.zeros(1, 3, 32, 32))
    assert sides[0] == 32
    assert sides == sorted(sides, reverse=True)
    assert set(sides) == ({32, 16, 8} if name == "wide_resnet" else {32, 16, 8, 4})


def test_wide_resnet_is_the_published_block_by_block() -> None:
    """WRN-10-1 written out by hand: pre-activation, the projection on the activated input."""
    model = build_model("wide_resnet", {"depth": 10, "widen": 2}, (3, 8, 8), 4).train()
    inputs = torch.randn(6, 3, 8, 8)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert (len(convolutions), len(norms)) == (1 + 3 * 3, 3 * 2 + 1)

    def normalised(x: Tensor) -> Tensor:
        mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)
        return torch.relu((x - mean) / torch.sqrt(var + 1e-5))

    x = nn.functional.conv2d(inputs, convolutions[0].weight, padding=1)
    for block, stride in enumerate((1, 2, 2)):
        first, second, projection = (convolutions[1 + 3 * block + i].weight for i in range(3))
        active = normalised(x)
        inner = normalised(nn.functional.conv2d(active, first, stride=stride, padding=1))
        x = nn.functional.conv2d(inner, second, padding=1) + nn.functional.conv2d(
            active, projection, stride=stride
        )
    torch.testing.assert_close(model(inputs).features, normalised(x).mean((2, 3)))


@pytest.mark.parametrize("name", ["resnet18", "wide_resnet", "small_cnn"])
def test_convolutions_start_with_he_variance(name: str) -> None:
    options = {"depth": 16, "widen": 4} if name == "wide_resnet" else {}
    model = build_model(name, options, (3, 32, 32), 10)
    checked = 0
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 10_000:
            fan_out = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
            variance = layer.weight.var().item() * fan_out / 2
            assert variance == pytest.approx(1, abs=6 * (2 / layer.weight.numel()) ** 0.5)
            checked += 1
        if isinstance(layer, nn.BatchNorm2d):
            assert bool((layer.weight == 1).all())
            assert bool((layer.bias == 0).all())
    assert checked >= 2


@pytest.mark.parametrize("name", ["mlp", "small_cnn", "resnet18", "wide_resnet"])
def test_same_seed_same_network(name: str) -> None:
    options = {"depth": 10, "widen": 1} if name == "wide_resnet" else {}
    shape = (3, 16, 16)
    flat = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        flat.append(
            nn.utils.parameters_to_vector(build_model(name, options, shape, 3).parameters())
        )
    assert torch.equal(flat[0], flat[1])
    assert not torch.equal(flat[0], flat[2])


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_says_in_one_line_what_it_is(name: str) -> None:
    first_line = (MODELS[name].__doc__ or "").splitlines()[0]
    assert len(first_line) > 15
    assert first_line.endswith(".")


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "shape", "classes", "message"),
    [
        ("resnet19", {}, (3, 32, 32), 10, "resnet18"),
        ("mlp", {"width": [3]}, (2,), 2, "unknown option 'width'; did you mean 'widths'"),
        ("mlp", {"widths": "many"}, (2,), 2, "'widths' = 'many'"),
        ("mlp", {"widths": [64, 0]}, (2,), 2, r"'widths\.1' = 0"),
        ("mlp", {"activation": "step"}, (2,), 2, "'activation' = 'step'.*'relu'"),
        ("mlp", {"dropout": 1.0}, (2,), 2, "'dropout' = 1.0"),
        ("small_cnn", {"channels": []}, (1, 8, 8), 2, "'channels'"),
        ("small_cnn", {}, (1, 3, 8), 2, r"at least 4; got input_shape \(1, 3, 8\)"),
        ("small_cnn", {}, (64,), 2, r"\(channels, height, width\).*\(64,\)"),
        ("resnet18", {}, (32, 32), 10, r"resnet18.*\(32, 32\)"),
        ("resnet18", {"depth": 18}, (3, 32, 32), 10, "unknown option 'depth'"),
        ("wide_resnet", {"depth": 30}, (3, 32, 32), 10, "28 or 34"),
        ("wide_resnet", {}, (3, 32), 10, r"wide_resnet.*\(3, 32\)"),
        ("mlp", {}, (), 2, r"input_shape.*\(\)"),
        ("mlp", {}, (0, 3), 2, r"input_shape.*\(0, 3\)"),
        ("mlp", {}, (2,), 1, "classes.*1"),
        ("mlp", {}, (2,), 2.0, "classes.*2.0"),
    ],
)
def test_misfits_are_refused_with_a_remedy(
    name: str, options: dict[str, Any], shape: tuple[int, ...], classes: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_model(name, options, shape, classes)


# --- the user's own models --------------------------------------------------------------------


def plain_logits(input_shape: tuple[int, ...], classes: int, width: int = 6) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(input_shape[0], width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, classes),
        nn.LogSoftmax(dim=1),
    )


class _Pair(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 3, 3)
        self.head = nn.LazyLinear(classes)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.convolution(inputs)
        return self.head(maps.flatten(1)), maps


def pair(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return _Pair(classes)


def without_linear(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(input_shape[0], classes, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def not_a_module(input_shape: tuple[int, ...], classes: int) -> str:
    return "network"


def wrong_width(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Linear(input_shape[0], classes + 1)


def _own(name: str) -> str:
    return f"{__name__}:{name}"


def test_features_of_plain_logits_are_the_last_linears_input() -> None:
    model = build_model(_own("plain_logits"), {"width": 9}, (4,), 3).eval()
    inputs = torch.randn(5, 4)
    output = model(inputs)
    assert isinstance(model, WithFeatures)
    body = list(model.network.children())
    expected = nn.Sequential(*body[:4])(inputs)
    torch.testing.assert_close(output.features, expected)
    torch.testing.assert_close(output.logits, body[5](body[4](expected)))


def test_a_pair_is_taken_as_logits_and_features() -> None:
    output = build_model(_own("pair"), {}, (1, 5, 5), 3)(torch.randn(2, 1, 5, 5))
    assert output.logits.shape == (2, 3)
    assert output.features.shape == (2, 27)


def test_without_a_linear_layer_the_features_are_the_logits() -> None:
    output = build_model(_own("without_linear"), {}, (2, 6, 6), 3)(torch.randn(2, 2, 6, 6))
    assert output.features is output.logits


def test_linear_layers_on_the_way_are_not_taken_for_the_last() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)
            self.gate = nn.Linear(3, 1)

        def forward(self, inputs: Tensor) -> Tensor:
            logits = self.head(inputs)
            return logits * torch.sigmoid(self.gate(logits))

    inputs = torch.randn(2, 4)
    assert torch.equal(WithFeatures(Gated())(inputs).features, inputs)


def test_trying_a_model_out_leaves_its_mode_and_statistics() -> None:
    model = build_model(_own("plain_logits"), {}, (4,), 3)
    assert model.training
    assert dict(model.named_buffers())["network.2.num_batches_tracked"] == 0


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("plain_logits", {"depth": 3}, (4,), "unexpected keyword argument 'depth'"),
        ("not_a_module", {}, (4,), "must return a torch.nn.Module; got str"),
        ("wrong_width", {}, (4,), r"logits of shape \(2, 4\).*expected \(2, 3\)"),
        ("without_linear", {}, (4,), r"failed on a batch of shape \(2, 4\)"),
        ("nowhere", {}, (4,), "cannot import model"),
        ("__doc__", {}, (4,), "must be a callable"),
    ],
)
def test_misfits_of_own_models_are_refused(
    name: str, options: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_model(_own(name), options, shape, 3)


# --- a module as a pure function --------------------------------------------------------------


class _Normalised(nn.Module):
    """Batch normalisation in every dimensionality, one layer used twice, dropout-free."""

    def __init__(self, momentum: float | None = 0.1, *, track: bool = True) -> None:
        super().__init__()
        settings: dict[str, Any] = {"momentum": momentum, "track_running_stats": track}
        self.maps = nn.Conv2d(2, 3, 3, padding=1)
        self.two = nn.BatchNorm2d(3, **settings)
        self.three = nn.BatchNorm3d(3, eps=1e-3, affine=False, **settings)
        self.one = nn.BatchNorm1d(12, **settings)
        self.head = nn.Linear(12, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        x = torch.tanh(self.two(self.maps(inputs)))
        x = self.two(x)
        x = self.three(x.unsqueeze(-1)).squeeze(-1)
        logits: Tensor = self.head(torch.tanh(self.one(x.flatten(1))))
        return logits


def _flat_gradient(module: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


@pytest.mark.parametrize("momentum", [0.1, 1.0, 0.0, None])
@pytest.mark.parametrize("track", [True, False])
def test_batch_norm_gives_the_stock_numbers(momentum: float | None, track: bool) -> None:
    stock = _Normalised(momentum, track=track).double()
    model = FunctionalModel(stock)
    parameters, buffers = model.initial()
    optimiser = torch.optim.SGD(stock.parameters(), lr=0.1)
    for step in range(6):
        inputs = 3 * torch.randn(5, 2, 2, 2, dtype=torch.double) + step
        labels = torch.randint(0, 4, (5,))
        stock.train()
        optimiser.zero_grad()
        expected = stock(inputs)
        cross_entropy(expected, labels).backward()
        optimiser.step()

        parameters.requires_grad_()
        output, buffers = model.apply(parameters, buffers, inputs, training=True)
        (slope,) = torch.autograd.grad(cross_entropy(output.logits, labels), parameters)
        torch.testing.assert_close(output.logits, expected)
        torch.testing.assert_close(slope, _flat_gradient(stock))
        parameters = (parameters - 0.1 * slope).detach()

        reference = dict(stock.named_buffers())
        assert buffers.keys() == reference.keys()
        for name, buffer in buffers.items():
            assert buffer.dtype == reference[name].dtype
            assert not buffer.requires_grad
            torch.testing.assert_close(buffer, reference[name], msg=name)
        stock.eval()
        output, after = model.apply(parameters, buffers, inputs, training=False)
        torch.testing.assert_close(output.logits, stock(inputs))
        assert all(torch.equal(after[name], buffers[name]) for name in buffers)


def test_apply_changes_nothing_it_was_given() -> None:
    module = _Normalised()
    before = copy.deepcopy(module.state_dict())
    model = FunctionalModel(module)
    parameters, buffers = model.initial()
    kept = {name: (buffer, buffer.clone()) for name, buffer in buffers.items()}
    for training in (True, False, True):
        model.apply(parameters, buffers, torch.randn(5, 2, 2, 2), training=training)
    for name, (buffer, value) in kept.items():
        assert buffers[name] is buffer
        assert torch.equal(buffer, value)
    assert type(module.two) is nn.BatchNorm2d
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_initial_values_are_copies() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model = FunctionalModel(module)
    parameters, buffers = model.initial()
    parameters.add_(1)
    buffers["1.running_mean"].add_(1)
    with torch.no_grad():
        module[0].weight.add_(5)
    fresh, fresh_buffers = model.initial()
    torch.testing.assert_close(fresh, parameters - 1)
    assert torch.equal(fresh_buffers["1.running_mean"], torch.zeros(3))
    assert not fresh.requires_grad


def test_unflatten_gives_views_that_load_into_the_module() -> None:
    module = _Normalised()
    model = FunctionalModel(module)
    parameters, buffers = model.initial()
    assert parameters.shape == (model.size,)
    views = model.unflatten(parameters)
    assert tuple(views) == model.names == tuple(dict(module.named_parameters()))
    for name, parameter in module.named_parameters():
        assert torch.equal(views[name], parameter)
        assert torch.equal(parameters[model.slices[name]], parameter.flatten())
    parameters.zero_()
    assert not bool(views["maps.weight"].any())
    module.load_state_dict(views | buffers, strict=False)
    assert not bool(nn.utils.parameters_to_vector(module.parameters()).any())


def _task(model: FunctionalModel) -> tuple[Any, Tensor]:
    parameters, buffers = model.initial()
    inputs = torch.randn(6, 2, 2, 2, dtype=parameters.dtype)
    labels = torch.randint(0, 4, (6,))

    def loss(flat: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        output, after = model.apply(flat, buffers, inputs, training=True)
        return cross_entropy(output.logits, labels), after

    return loss, parameters


def test_torch_func_agrees_with_plain_autograd_through_batch_norm() -> None:
    loss, parameters = _task(FunctionalModel(_Normalised().double()))
    slope, after = grad(loss, has_aux=True)(parameters)
    value, expected_after = loss(parameters.requires_grad_())
    (expected,) = torch.autograd.grad(value, parameters)
    torch.testing.assert_close(slope, expected)
    for name, buffer in expected_after.items():
        torch.testing.assert_close(after[name], buffer)


def test_second_derivatives_agree_with_finite_differences() -> None:
    model = FunctionalModel(_Normalised().double())
    loss, parameters = _task(model)
    direction = torch.randn_like(parameters)

    def slope_along(flat: Tensor) -> Tensor:
        flat = flat.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss(flat)[0], flat)
        return slope @ direction

    flat = parameters.requires_grad_()
    (slope,) = torch.autograd.grad(loss(flat)[0], flat, create_graph=True)
    (product,) = torch.autograd.grad(slope @ direction, flat)
    for index in (0, 20, 60, model.size - 1):
        step = torch.zeros_like(parameters)
        step[index] = 1e-5
        with torch.no_grad():
            up, down = parameters + step, parameters - step
        difference = (slope_along(up) - slope_along(down)) / 2e-5
        assert product[index].item() == pytest.approx(difference.item(), rel=1e-5, abs=1e-8)


def test_jacobians_of_gradients_through_batch_norm_are_right() -> None:
    """torch's own fused batch normalisation fails this by orders of magnitude."""
    loss, parameters = _task(FunctionalModel(_Normalised().double()))
    forward_over_reverse = hessian(lambda p: loss(p)[0])(parameters)
    reverse_over_reverse = jacrev(grad(lambda p: loss(p)[0]))(parameters)
    for _ in range(4):
        direction = torch.randn_like(parameters)
        expected = torch.autograd.functional.hvp(lambda p: loss(p)[0], parameters, direction)[1]
        torch.testing.assert_close(forward_over_reverse @ direction, expected)
        torch.testing.assert_close(reverse_over_reverse @ direction, expected)


def test_hypergradient_through_two_steps_is_the_same_in_every_engine() -> None:
    """d loss(θ₂)/d w of two weighted gradient steps: autograd, torch.func, vmap over θ₀."""
    model = FunctionalModel(_Normalised().double())
    start, buffers = model.initial()
    inputs = torch.randn(6, 2, 2, 2, dtype=torch.double)
    labels = torch.randint(0, 4, (6,))

    def losses(flat: Tensor) -> Tensor:
        output, _ = model.apply(flat, buffers, inputs, training=True)
        return cross_entropy(output.logits, labels, reduction="none")

    def functional(weights: Tensor, flat: Tensor) -> Tensor:
        for _ in range(2):
            flat = flat - 0.1 * grad(lambda p: (weights * losses(p)).sum())(flat)
        return losses(flat).mean()

    weights = torch.rand(6, dtype=torch.double, requires_grad=True)
    starts = torch.stack([start, start + 0.1 * torch.randn_like(start)])
    stacked = vmap(grad(functional), in_dims=(None, 0))(weights.detach(), starts)
    for index in range(2):
        flat = starts[index].requires_grad_()
        for _ in range(2):
            loss = (weights * losses(flat)).sum()
            flat = flat - 0.1 * torch.autograd.grad(loss, flat, create_graph=True)[0]
        (expected,) = torch.autograd.grad(losses(flat).mean(), weights)
        torch.testing.assert_close(grad(functional)(weights.detach(), starts[index]), expected)
        torch.testing.assert_close(stacked[index], expected)


def test_batch_norm_needs_more_than_one_value_per_channel_in_training() -> None:
    model = FunctionalModel(nn.BatchNorm1d(2))
    parameters, buffers = model.initial()
    one = torch.ones(1, 2)
    with pytest.raises(ValueError, match="more than 1 value"):
        model.apply(parameters, buffers, one, training=True)
    with pytest.raises(ValueError, match=r"more than one value.*\(1, 2\)"):
        grad(lambda p: model.apply(p, buffers, one, training=True)[0].logits.sum())(parameters)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_vmap_trains_stacked_networks_as_if_one_by_one(momentum: float | None) -> None:
    models = [FunctionalModel(_Normalised(momentum).double()) for _ in range(3)]
    starts = [model.initial() for model in models]
    model = models[0]
    stacked = torch.stack([parameters for parameters, _ in starts])
    buffers = starts[0][1]
    inputs = torch.randn(2, 6, 2, 2, 2, dtype=torch.double)
    labels = torch.randint(0, 4, (6,))

    def step(flat: Tensor, stats: dict[str, Tensor], x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        def loss(flat: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            output, after = model.apply(flat, stats, x, training=True)
            return cross_entropy(output.logits, labels), after

        slope, after = grad(loss, has_aux=True)(flat)
        return flat - 0.1 * slope, after

    # In the first step the statistics are not stacked yet, in the second they are.
    together, stats = vmap(step, in_dims=(0, None, None))(stacked, buffers, inputs[0])
    together, stats = vmap(step, in_dims=(0, 0, None))(together, stats, inputs[1])
    evaluated = vmap(
        lambda p, b: model.apply(p, b, inputs[0], training=False)[0].logits,
    )(together, stats)
    for index in range(3):
        alone, own = step(stacked[index], buffers, inputs[0])
        alone, own = step(alone, own, inputs[1])
        torch.testing.assert_close(together[index], alone)
        for name, buffer in own.items():
            torch.testing.assert_close(stats[name][index], buffer)
        expected = model.apply(alone, own, inputs[0], training=False)[0].logits
        torch.testing.assert_close(evaluated[index], expected)


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("mlp", {}, (2,)),
        ("small_cnn", {"channels": [3, 5]}, (1, 8, 8)),
        ("resnet18", {}, (3, 8, 8)),
        ("wide_resnet", {"depth": 10, "widen": 1}, (3, 8, 8)),
    ],
)
def test_registered_models_agree_with_their_stateless_selves(
    name: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    module = build_model(name, options, shape, 3).double()
    model = FunctionalModel(module)
    parameters, buffers = model.initial()
    inputs, labels = torch.randn(4, *shape).double(), torch.tensor([0, 1, 2, 0])
    expected = module(inputs)
    cross_entropy(expected.logits, labels).backward()

    def loss(flat: Tensor) -> tuple[Tensor, Output]:
        output, _ = model.apply(flat, buffers, inputs, training=True)
        return cross_entropy(output.logits, labels), output

    slope, output = grad(loss, has_aux=True)(parameters)
    torch.testing.assert_close(output.logits, expected.logits)
    torch.testing.assert_close(output.features, expected.features)
    torch.testing.assert_close(slope, _flat_gradient(module))


def test_dropout_acts_in_training_only() -> None:
    model = FunctionalModel(build_model("mlp", {"dropout": 0.5, "widths": [200]}, (2,), 3))
    parameters, buffers = model.initial()
    inputs = torch.randn(4, 2)

    def logits(training: bool) -> Tensor:
        return model.apply(parameters, buffers, inputs, training=training)[0].logits

    assert torch.equal(logits(False), logits(False))
    assert not torch.equal(logits(True), logits(True))
    assert torch.equal(logits(False), logits(False))
    torch.manual_seed(5)
    first = logits(True)
    torch.manual_seed(5)
    assert torch.equal(first, logits(True))


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.second(torch.tanh(self.first(inputs)))
        return result


def test_tied_parameters_count_once_and_stay_tied() -> None:
    module = _Tied()
    model = FunctionalModel(module)
    assert model.names == ("first.weight", "first.bias", "second.bias")
    assert model.size == 16 + 4 + 4
    assert set(model.head) == {"first.weight", "second.bias"}
    inputs = torch.randn(3, 4)
    parameters = torch.randn(model.size, requires_grad=True)
    output, _ = model.apply(parameters, {}, inputs, training=True)
    views = model.unflatten(parameters)
    expected = functional_call(module, views, (inputs,), tie_weights=True)
    torch.testing.assert_close(output.logits, expected)
    (slope,) = torch.autograd.grad(output.logits.pow(2).sum(), parameters)
    (expected_slope,) = torch.autograd.grad(expected.pow(2).sum(), parameters)
    torch.testing.assert_close(slope, expected_slope)


def test_frozen_parameters_are_carried_among_the_buffers() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    model = FunctionalModel(module)
    parameters, buffers = model.initial()
    assert model.size == 3 + 3 + 6 + 2
    assert {"0.weight", "0.bias"} < buffers.keys()
    output, after = model.apply(parameters, buffers, torch.ones(4, 3), training=True)
    torch.testing.assert_close(output.logits, module(torch.ones(4, 3)))
    assert torch.equal(after["0.weight"], module[0].weight)


class _InPlace(nn.Module):
    """A user's layer that changes its buffer in place and lets gradient into it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("total", torch.zeros(2))
        self.register_buffer("absent", None)
        self.register_buffer("constant", torch.ones(2), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.linear(inputs)
        self.total.add_(logits.sum(0))
        return logits


def test_buffers_changed_in_place_are_returned_not_overwritten() -> None:
    model = FunctionalModel(_InPlace())
    parameters, buffers = model.initial()
    parameters.requires_grad_()
    assert set(buffers) == {"total", "constant"}
    inputs = torch.randn(3, 2)
    output, after = model.apply(parameters, buffers, inputs, training=True)
    assert torch.equal(buffers["total"], torch.zeros(2))
    torch.testing.assert_close(after["total"], output.logits.detach().sum(0))
    assert not after["total"].requires_grad


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_use_the_given_parameters(layer: type[nn.RNNBase]) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = layer(3, 4, batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, inputs: Tensor) -> Tensor:
            logits: Tensor = self.head(self.recurrent(inputs)[0][:, -1])
            return logits

    model = FunctionalModel(Recurrent())
    other = Recurrent()
    parameters = nn.utils.parameters_to_vector(other.parameters()).detach().requires_grad_()
    inputs = torch.randn(2, 5, 3)
    output, _ = model.apply(parameters, {}, inputs, training=True)
    torch.testing.assert_close(output.logits, other(inputs))
    assert output.features.shape == (2, 4)
    output.logits.sum().backward()
    other(inputs).sum().backward()
    assert parameters.grad is not None
    torch.testing.assert_close(parameters.grad, _flat_gradient(other))
    # Recurrent layers keep a list of their weights aside; a copy must not trip over it.
    twin = copy.deepcopy(model)
    torch.testing.assert_close(
        twin.apply(parameters, {}, inputs, training=True)[0].logits, output.logits
    )


def test_the_head_is_the_last_layer() -> None:
    model = FunctionalModel(build_model("mlp", {"widths": [8]}, (2,), 3))
    assert model.head == ("head.weight", "head.bias")
    parameters, buffers = model.initial()
    without_head = parameters.clone()
    for name in model.head:
        without_head[model.slices[name]] = 0.0
    assert torch.equal(without_head[: 2 * 8 + 8], parameters[: 2 * 8 + 8])
    output, _ = model.apply(without_head, buffers, torch.randn(4, 2), training=False)
    assert not bool(output.logits.any())
    assert bool(output.features.any())


def test_normalisation_after_the_last_linear_layer_is_no_head() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert FunctionalModel(module).head == ("2.weight", "2.bias")


def test_without_a_linear_layer_the_head_is_the_last_with_parameters() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 4, 1), nn.Flatten())
    assert FunctionalModel(module).head == ("2.weight", "2.bias")


def test_copies_and_pickles_compute_the_same_even_after_use() -> None:
    model = FunctionalModel(build_model(_own("plain_logits"), {}, (4,), 3))
    parameters, buffers = model.initial()
    inputs = torch.randn(5, 4)
    parameters.requires_grad_()
    output, after = model.apply(parameters, buffers, inputs, training=True)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin.initial()[0], parameters)
        again, twin_after = twin.apply(parameters, buffers, inputs, training=True)
        assert torch.equal(again.logits, output.logits)
        assert torch.equal(again.features, output.features)
        assert all(torch.equal(twin_after[name], after[name]) for name in after)


def test_a_failed_forward_leaves_the_model_usable() -> None:
    model = FunctionalModel(_Normalised())
    parameters, buffers = model.initial()
    inputs = torch.randn(4, 2, 2, 2)
    expected = model.apply(parameters, buffers, inputs, training=True)[0].logits
    with pytest.raises(RuntimeError):
        model.apply(parameters, buffers, torch.randn(4, 2, 3, 3), training=True)
    assert torch.equal(model.apply(parameters, buffers, inputs, training=True)[0].logits, expected)


def test_what_cannot_be_one_vector_is_refused() -> None:
    with pytest.raises(ValueError, match="no trainable parameters"):
        FunctionalModel(nn.ReLU())
    with pytest.raises(ValueError, match=r"float32 on cpu, torch\.float64 on cpu"):
        FunctionalModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    with pytest.raises(ValueError, match="lazy"):
        FunctionalModel(nn.LazyLinear(3))


def test_foreign_parameters_or_buffers_are_refused() -> None:
    model = FunctionalModel(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    parameters, buffers = model.initial()
    with pytest.raises(ValueError, match=r"vector of 10; got shape \(9,\)"):
        model.apply(parameters[:-1], buffers, torch.randn(3, 2), training=True)
    with pytest.raises(ValueError, match="running_mean"):
        model.apply(parameters, {}, torch.randn(3, 2), training=True)
