"""Monte Carlo dropout: the mean of passes with fixed masks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from calibration.data import PROTOCOLS, load_dataset
from calibration.methods import make_method
from calibration.models import FunctionalModel, Output, build_model
from calibration.models.monte_carlo import MonteCarloDropout, SampledDropout
from calibration.models.output import Network
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

SHAPES = {"mlp": (6,), "small_cnn": (3, 8, 8), "wide_resnet": (3, 8, 8)}
SMALL: dict[str, dict[str, object]] = {
    "mlp": {"widths": [16, 16]},
    "small_cnn": {"channels": [8]},
    "wide_resnet": {"depth": 10, "widen": 1},
}


def built(name: str, **options: object) -> Network:
    torch.manual_seed(0)
    return build_model(name, {**SMALL[name], "dropout": 0.4, **options}, SHAPES[name], 3)


@pytest.mark.parametrize("name", SHAPES)
def test_a_prediction_depends_on_its_row_alone_and_repeats(name: str) -> None:
    network = built(name, mc_dropout=4).eval()
    inputs = torch.randn(9, *SHAPES[name])
    whole = network(inputs).logits
    torch.manual_seed(99)
    assert torch.equal(network(inputs).logits, whole)
    torch.testing.assert_close(network(inputs[3:5]).logits, whole[3:5])
    torch.testing.assert_close(whole.exp().sum(-1), torch.ones(9))
    plain = built(name).eval()(inputs).logits.softmax(-1)
    assert (whole.exp() - plain).abs().max() > 1e-3


@pytest.mark.parametrize("name", SHAPES)
def test_training_is_as_without_it(name: str) -> None:
    sampled, plain = built(name, mc_dropout=4).train(), built(name).train()
    inputs = torch.randn(9, *SHAPES[name])
    found = []
    for network in (sampled, plain):
        torch.manual_seed(1)
        found.append(network(inputs).logits)
    assert torch.equal(*found)


class Doubled(Network):
    """logits = (d, 0) with d the sum of the inputs that dropout leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Output:
        left = self.dropout(inputs) * self.scale
        total = left.sum(1, keepdim=True)
        return Output(torch.cat([total, torch.zeros_like(total)], dim=1), left)


def test_it_is_the_mean_probability_over_the_masks() -> None:
    """One unit, kept and doubled half of the time: ½ σ(2x) + ½ σ(0) as the passes grow."""
    network = MonteCarloDropout(Doubled(), 4000).eval()
    x = torch.tensor([[1.5]])
    expected = (torch.tensor(3.0).sigmoid() + 0.5) / 2
    # The share of passes with the unit has a standard error of ½/√4000 = 0.008.
    with torch.no_grad():
        logits, features = network(x)
    assert logits.exp()[0, 0].item() == pytest.approx(expected.item(), abs=4 * 0.008 * 0.45)
    assert features.item() == pytest.approx(1.5, abs=4 * 0.008 * 3)


def test_other_dropout_layers_have_other_masks() -> None:
    network = built("mlp", mc_dropout=2, widths=[64, 64])
    layers = [layer for layer in network.modules() if isinstance(layer, SampledDropout)]
    ones = torch.ones(1, 64)
    masks = []
    for layer in layers:
        for layer.sample in (0, 1):
            masks.append(layer.eval()(ones))
    for i, first in enumerate(masks):
        assert first.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
        assert all(not torch.equal(first, other) for other in masks[:i])


def test_it_works_as_a_function_of_its_parameters() -> None:
    network = built("mlp", mc_dropout=3)
    model = FunctionalModel(network)
    parameters, buffers = model.initial()
    inputs = torch.randn(5, 6)
    output, _ = model.apply(parameters, buffers, inputs, training=False)
    torch.testing.assert_close(output.logits, network.eval()(inputs).logits)
    assert model.head == ("network.head.weight", "network.head.bias")


def test_without_dropout_it_is_refused() -> None:
    with pytest.raises(ValueError, match="set dropout above 0"):
        build_model("mlp", {"mc_dropout": 5}, (2,), 2)


def test_a_trained_network_is_validated_as_it_predicts() -> None:
    """What the curve says of the best epoch is what the stored predictions come to."""
    dataset = load_dataset("iris", {})
    run = TrainingRun(
        make_method("standard", {"lr": 0.05}),
        dataset.split(PROTOCOLS["honest"], 1, held_out=False),
        model="mlp",
        model_options={"widths": [16], "dropout": 0.3, "mc_dropout": 5},
        classes=3,
        config=TrainingConfig(epochs=3),
        seed=1,
    )
    while not run.done:
        run.run_epoch()
    logits = run.predict_validation()
    nll = nn.functional.cross_entropy(logits.double(), run.validation.labels).item()
    (best,) = (row for row in run.curve if row["epoch"] == run.best_epoch)
    assert nll == pytest.approx(best["validation/nll"], rel=1e-6)
    # Rows of mean probabilities.
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(len(logits)))
