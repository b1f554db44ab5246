"""Comparisons of a calibrator with none: paired over rows, silent where nothing differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from calibration.metrics import METRICS
from calibration.metrics.bootstrap import Resampled, resampled_metrics
from calibration.metrics.predictions import Predictions
from sweeps.posthoc.comparison import comparisons


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
    return resampled_metrics(Predictions.of(rows, labels), metrics=names, resamples=resamples)


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
        region = METRICS[metric].region
        below, above = (
            stats.ttest_1samp(ours - baseline, edge, alternative=side).pvalue
            for edge, side in ((-region, "less"), (region, "greater"))
        )
        p = min(below, above, max(1 - below, 1 - above))
        assert row["p"] == pytest.approx(p, rel=0.25)
        low, high = expected.confidence_interval()
        width = high - low
        assert (row["low"], row["high"]) == pytest.approx((low, high), abs=0.06 * width)


@pytest.mark.slow
def test_no_difference_is_found_where_there_is_none() -> None:
    """Two predictors with noise of the same kind are equally good, in every metric."""
    generator = np.random.default_rng(0)
    false = {"nll": 0, "ece": 0, "error": 0}
    runs, decided = 250, 0
    for _ in range(runs):
        z = 2 * generator.normal(size=(300, 3))
        y = np.array([generator.choice(3, p=p) for p in softmax(z)])
        one, other = (softmax(z + 0.8 * generator.normal(size=z.shape)) for _ in range(2))
        table = comparisons(
            {"identity": _resampled(one, y, 200), "other": _resampled(other, y, 200)}, "d", "m", 300
        )
        for _, row in table[table["calibrator"] == "other"].iterrows():
            false[row["metric"]] += row["verdict"] in ("better", "worse")
            decided += row["verdict"] == "equivalent"
    # Three standard deviations above the nominal rate.
    assert all(count <= runs * 0.05 + 3 * np.sqrt(runs * 0.05 * 0.95) for count in false.values())
    # 300 rows are too few to show that there is none, either.
    assert decided <= 0.05 * 3 * runs


def test_verdicts() -> None:
    def judged(difference: float, deviation: float, metric: str = "nll", rows: int = 1000) -> str:
        """Of a calibrator that differs by so much, with so large a standard error."""
        values = torch.tensor([0.4, 0.6]), torch.tensor([0.4 + deviation, 0.6 - deviation])
        plain, other = (
            {metric: Resampled(torch.tensor(at), found, torch.tensor(0.0))}
            for at, found in zip((0.5, 0.5 + difference), values, strict=True)
        )
        return str(comparisons({"identity": plain, "m": other}, "d", "m", rows).iloc[1]["verdict"])

    assert judged(-0.1, 0.01) == "better"
    assert judged(0.1, 0.01) == "worse"
    assert judged(0.012, 0.01) == "undecided"
    assert judged(0.001, 0.001) == "equivalent"
    # The same predictions are equivalent; the same number of errors on a few rows need not be.
    assert judged(0.0, 0.0) == judged(0.0, 0.0, "error") == "equivalent"
    assert judged(0.0, 0.0, "error", rows=50) == "undecided"


@pytest.mark.parametrize(
    ("ours", "baseline", "said"),
    [
        (0.5, np.inf, "better"),
        (np.inf, 0.5, "worse"),
        (np.inf, np.inf, "undecided"),
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
