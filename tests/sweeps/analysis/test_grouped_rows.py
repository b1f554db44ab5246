"""Rows in groups: tests are about new groups, and leaked groups make no winner."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.neighbors import KNeighborsClassifier

from calibration.data import PROTOCOLS, load_dataset
from calibration.metrics import METRICS
from calibration.metrics.row_scores import RowScores, row_scores
from sweeps.analysis.row_evidence import RowEvidence
from sweeps.analysis.statistics import Claims, Estimate, by_group, claim_tests, crossed_means
from sweeps.analysis.verdicts import Question, judged


def test_groups_keep_the_means_of_their_rows() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 40))
    groups = rng.integers(0, 9, 40)
    assert by_group(rows, groups).mean(axis=1) == pytest.approx(rows.mean(axis=1))
    even = np.repeat(np.arange(10), 4)
    assert by_group(rows, even) == pytest.approx(rows.reshape(3, 10, 4).mean(axis=2))


def false_claims(groups: int, repeats: int, *, clustered: bool) -> float:
    """How often a difference that is not there is called one at 5 %: rows of a group err alike."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(repeats):
        member = np.repeat(np.arange(groups), 1 + rng.poisson(30, groups))
        shared = rng.normal(size=groups)[member]
        rows = shared + rng.normal(size=(3, len(member))) + 0.05 * rng.normal(size=(3, 1))
        estimate = crossed_means(by_group(rows, member) if clustered else rows)
        claims = claim_tests(estimate, 0.0)
        found += min(claims.below, claims.above) < 0.025
    return found / repeats


def test_groups_keep_the_level_that_rows_break() -> None:
    repeats = 400
    allowed = 0.05 + 4 * math.sqrt(0.05 * 0.95 / repeats)
    assert false_claims(50, repeats, clustered=True) < allowed
    assert false_claims(50, repeats, clustered=False) > 1.5 * allowed


def scores_of(seed: int, worse: float, groups: torch.Tensor | None) -> RowScores:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(120, 2, generator=generator).double() - torch.tensor([worse, 0.0])
    labels = torch.arange(120) % 2
    return row_scores(logits.softmax(-1), labels, logits.argmax(-1), groups)


@pytest.mark.parametrize("name", ["nll", "error", "ece"])
def test_verdicts_about_grouped_rows_count_groups(name: str) -> None:
    groups = torch.arange(120) // 6
    metric, seeds = METRICS[name], range(3)

    def estimate(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> Estimate | None:
        def read(row: tuple[str, str], seed: int) -> RowScores:
            first = row[0] == "a"
            return scores_of(seed, 0.0 if first else 0.1, ours if first else theirs)

        return RowEvidence(read, 15).estimate(
            metric, ("a", "identity"), ("b", "identity"), dict.fromkeys(seeds, 0.01)
        )

    found, plain = estimate(groups, groups), estimate(None, None)
    assert found is not None
    assert plain is not None
    assert (found.rows, found.grouped) == (20, True)
    assert (plain.rows, plain.grouped) == (120, False)
    assert estimate(groups, groups.flip(0)) is None
    assert estimate(groups, None) is None


def test_what_would_decide_is_said_in_groups() -> None:
    found = Estimate(0.0, 0.01, 19.0, 3, 20, by_seed=0.0, by_row=0.2, grouped=True)
    said = [
        judged([Question.about(METRICS["nll"], 0.05, "family", estimate)])[0].would_decide
        for estimate in (found, found._replace(grouped=False))
    ]
    assert said[0].endswith(" more test groups")
    assert said[1] == said[0].replace("groups", "rows")


def leaking(path: Path, draw: int) -> Path:
    """80 customers with 8 rows each, a look of their own, and a label by the toss of a coin."""
    rng = np.random.default_rng(draw)
    customer = np.repeat(np.arange(80), 8)
    look = rng.normal(size=(80, 4))[customer] + 0.05 * rng.normal(size=(640, 4))
    frame = pd.DataFrame(look, columns=list("abcd"))
    frame.assign(customer=customer, label=rng.permutation(np.arange(80) % 2)[customer]).to_csv(
        path / "leak.csv", index=False
    )
    return path / "leak.csv"


def compared(path: Path, options: dict[str, str]) -> tuple[float, Claims]:
    """How much lower the memoriser's validation NLL is, and the claims about its test error."""
    dataset = load_dataset(
        "table", {"path": path, "target": "label", "drop": ["customer"], **options}
    )
    differences, gains = [], []
    test = dataset.test(0)
    for seed in range(3):
        splits = dataset.split(PROTOCOLS["honest"], seed, held_out=False)
        errors, losses = [], []
        for model in (KNeighborsClassifier(3), DummyClassifier(strategy="prior")):
            model.fit(splits.train.inputs, splits.train.labels)
            said = np.clip(model.predict_proba(splits.validation.inputs), 0.01, 0.99)
            right = np.take_along_axis(said, splits.validation.labels.numpy()[:, None], 1)
            losses.append(-float(np.log(right).mean()))
            errors.append(model.predict(test.inputs) != test.labels.numpy())
        differences.append(errors[0].astype(float) - errors[1])
        gains.append(losses[1] - losses[0])
    rows = np.stack(differences)
    if test.groups is not None:
        rows = by_group(rows, test.groups.numpy())
    return float(np.mean(gains)), claim_tests(crossed_means(rows, quantum=1.0), 0.05)


def test_a_leak_between_groups_makes_a_winner_of_random_rows_only(tmp_path: Path) -> None:
    leaks, kept_apart = [], []
    for draw in range(6):
        path = leaking(tmp_path, draw)
        leaks.append(compared(path, {}))
        kept_apart.append(compared(path, {"group": "customer"}))
    # Validation data chooses who memorised the customers, and test data agrees.
    assert all(gain > 0.3 and claims.below < 0.01 for gain, claims in leaks)
    assert all(gain < 0 for gain, _ in kept_apart)
    assert sum(claims.below < 0.05 for _, claims in kept_apart) <= 1
