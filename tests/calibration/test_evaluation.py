"""Evaluation: cross-fitting never sees its own rows; numbers are those of the metrics."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calibration import calibrators, metrics
from calibration.calibrators import Calibrator
from calibration.data import load_dataset
from calibration.evaluation import (
    LabelledLogits,
    _folds,
    cross_fitted,
    evaluate,
    evaluate_oracle,
)


class Memoriser(Calibrator):
    """Gives certainty to rows it was fitted on, and an even guess to all others."""

    description = "for this test"
    scaling = False
    keeps_argmax = False
    fast = False

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        self.seen = {tuple(row.tolist()) for row in logits}

    def _apply(self, logits: Tensor) -> Tensor:
        even = torch.full(logits.shape, 1 / logits.shape[1], dtype=torch.double)
        certain = torch.eye(logits.shape[1], dtype=torch.double)[0]
        known = torch.tensor([tuple(row.tolist()) in self.seen for row in logits])
        return torch.where(known[:, None], certain, even)


def predictions(n: int, seed: int, classes: int = 3) -> LabelledLogits:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    return LabelledLogits(2.5 * logits, labels)  # over-confident by a temperature of 2.5


@pytest.mark.parametrize("n", [7, 40, 301])
def test_cross_fitting_never_scores_a_row_with_a_map_that_saw_it(n: int) -> None:
    sample = predictions(n, seed=1)
    output = cross_fitted(f"{__name__}:Memoriser", sample.logits, sample.labels, seed=0)
    assert torch.equal(output, torch.full((n, 3), 1 / 3, dtype=torch.double))


@pytest.mark.parametrize("kind", ["groups", "times"])
@pytest.mark.parametrize("number", [2, 5, 23])
def test_cross_fitting_never_scores_a_row_with_a_map_that_saw_its_group(
    kind: str, number: int
) -> None:
    sample = predictions(60, seed=1)
    member = torch.randint(number, (60,), generator=torch.Generator().manual_seed(3))
    alike = sample.logits[member]  # rows of one group cannot be told apart
    output = cross_fitted(f"{__name__}:Memoriser", alike, sample.labels, seed=0, **{kind: member})
    assert torch.equal(output, torch.full((60, 3), 1 / 3, dtype=torch.double))


def test_times_are_cut_into_blocks_of_about_as_many_rows() -> None:
    times = torch.randint(40, (1000,), generator=torch.Generator().manual_seed(4))
    fold = _folds(torch.zeros_like(times), 0, 5, times=times)
    ordered = fold[times.argsort(stable=True)]
    assert (ordered.diff() >= 0).all()
    assert torch.bincount(fold).tolist() == pytest.approx([200] * 5, rel=0.2)


def test_groups_are_dealt_out_by_class_and_size() -> None:
    labels = torch.arange(100) // 20  # 5 classes in 4 groups of 5 rows each
    fold = _folds(labels, 0, 4, groups=torch.arange(100) // 5)
    assert torch.bincount(fold).tolist() == [25] * 4
    assert all(len(labels[fold == number].unique()) == 5 for number in range(4))


def test_cross_fitted_rows_keep_their_order() -> None:
    sample = predictions(300, seed=2)
    output = cross_fitted("temperature", sample.logits, sample.labels, seed=0)
    assert torch.equal(output.argmax(-1), sample.logits.argmax(-1))


def test_a_class_with_a_single_row_does_not_stop_it() -> None:
    sample = predictions(60, seed=3)
    labels = sample.labels.clamp(max=1)
    labels[0] = 2
    output = cross_fitted("temperature", sample.logits, labels, seed=0)
    assert output.shape == (60, 3)


def test_the_numbers_are_those_of_the_fitted_map() -> None:
    validation, test = predictions(400, seed=4), predictions(2000, seed=5)
    found = evaluate(["identity", "temperature", "isotonic_top_label"], validation, test)
    fitted = calibrators.fit("temperature", validation.logits, validation.labels)
    expected = metrics.panel(fitted(test.logits), test.labels)
    assert found["temperature"].test == expected
    assert found["temperature"].test["ece"] < 0.5 * found["identity"].test["ece"]
    assert found["temperature"].validation["nll"] < found["identity"].validation["nll"]
    assert "nll" not in found["isotonic_top_label"].test  # a confidence is no probability row
    assert found["isotonic_top_label"].test["ece"] < found["identity"].test["ece"]
    for evaluation in found.values():
        mean, q95 = evaluation.floor
        assert 0 < mean < q95 < 0.1
        low, high = evaluation.intervals["ece"]
        assert low <= evaluation.test["ece"] <= high


def test_the_oracle_is_calibrated_up_to_noise_and_nobody_beats_its_posterior() -> None:
    dataset = load_dataset("blobs-1.7", {"test_points": 4000})
    part = dataset.test(0)
    posterior = dataset.posterior(part.inputs)
    assert posterior is not None
    test = LabelledLogits(torch.randn(4000, 5), part.labels, posterior)
    oracle = evaluate_oracle(test)
    assert oracle.test["posterior_gap"] == pytest.approx(0, abs=1e-9)
    assert oracle.test["true_ce"] == pytest.approx(0, abs=1e-9)
    assert oracle.test["ece"] < 2 * oracle.floor[1]
    assert oracle.test["error"] == pytest.approx(1 - 0.868, abs=0.02)
    with pytest.raises(ValueError, match="posterior"):
        evaluate_oracle(LabelledLogits(test.logits, test.labels))
