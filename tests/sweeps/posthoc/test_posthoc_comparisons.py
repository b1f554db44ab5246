"""Comparisons of a calibrator with none: paired over rows, silent where nothing differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from calibration.metrics.bootstrap import Resampled, resampled_metrics
from sweeps.posthoc.comparison import comparisons, verdict


def drawn(rows: int, seed: int, factor: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits of three classes that are over-confident by ``factor``, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    return (factor * logits).numpy(), labels.numpy()


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    return torch.from_numpy(logits).double().softmax(-1).numpy()


def _resampled(rows: NDArray[Any], labels: NDArray[Any], resamples: int) -> dict[str, Resampled]:
    names = ["nll", "ece", "error"]
    return resampled_metrics(rows, labels, metrics=names, resamples=resamples)


def test_comparisons_of_means_are_paired_t_tests() -> None:
    z, y = drawn(400, 3, factor=1.3)
    plain, other = softmax(z), softmax(z / 1.2 + 0.3 * np.sin(np.arange(1200)).reshape(400, 3))
    found = comparisons(
        {"identity": _resampled(plain, y, 4000), "other": _resampled(other, y, 4000)}, "d", "m", 400
    ).set_index(["calibrator", "metric"])
    losses = [-np.log(rows[np.arange(400), y]) for rows in (other, plain)]
    errors = [(rows.argmax(1) != y).astype(float) for rows in (other, plain)]
    for metric, (ours, baseline) in (("nll", losses), ("error", errors)):
        expected = stats.ttest_rel(ours, baseline)
        row = found.loc["other", metric]
        assert row["difference"] == pytest.approx((ours - baseline).mean())
        assert row["p"] == pytest.approx(expected.pvalue, rel=0.25)
        low, high = expected.confidence_interval()
        width = high - low
        assert (row["low"], row["high"]) == pytest.approx((low, high), abs=0.06 * width)


@pytest.mark.slow
def test_no_difference_is_found_where_there_is_none() -> None:
    """Two predictors with noise of the same kind are equally good, in every metric."""
    generator = np.random.default_rng(0)
    false = {"nll": 0, "ece": 0, "error": 0}
    runs = 250
    for _ in range(runs):
        z = 2 * generator.normal(size=(300, 3))
        y = np.array([generator.choice(3, p=p) for p in softmax(z)])
        one, other = (softmax(z + 0.8 * generator.normal(size=z.shape)) for _ in range(2))
        table = comparisons(
            {"identity": _resampled(one, y, 200), "other": _resampled(other, y, 200)}, "d", "m", 300
        )
        for _, row in table[table["calibrator"] == "other"].iterrows():
            false[row["metric"]] += row["verdict"] != "no difference shown"
    # Three standard deviations above the nominal rate.
    assert all(count <= runs * 0.05 + 3 * np.sqrt(runs * 0.05 * 0.95) for count in false.values())
    assert sum(false.values()) > 0


def test_verdicts() -> None:
    assert verdict(0.4, 0.5, 0.01) == "better"
    assert verdict(0.5, 0.4, 0.01) == "worse"
    assert verdict(0.5, 0.4, 0.05) == "no difference shown"
    one = {"nll": Resampled(*(torch.tensor(v) for v in (0.5, [0.4, 0.6], 0.0)))}
    same = comparisons({"identity": one, "same": one}, "d", "m", 50).iloc[1]
    assert (same["p"], same["verdict"]) == (1.0, "no difference shown")


@pytest.mark.parametrize(
    ("ours", "baseline", "said"),
    [
        (0.5, np.inf, "better"),
        (np.inf, 0.5, "worse"),
        (np.inf, np.inf, "no difference shown"),
        (np.nan, 0.5, "not measured"),
        (0.5, np.nan, "not measured"),
    ],
)
def test_infinite_losses_have_a_verdict_and_missing_ones_none(
    ours: float, baseline: float, said: str
) -> None:
    calibrators = {
        name: {"nll": Resampled(torch.tensor(v), torch.full((9,), v), torch.tensor(0.0))}
        for name, v in (("identity", baseline), ("map", ours))
    }
    assert comparisons(calibrators, "d", "m", 50)["verdict"].tolist() == ["baseline", said]
