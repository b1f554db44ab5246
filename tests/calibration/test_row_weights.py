"""Rows by weight: how often each is drawn, and what every method makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.data import Part, Splits
from calibration.data.transforms import fit_transform
from calibration.learners import make_learner
from calibration.methods import METHODS, Method
from calibration.row_weights import drawn_by_weight
from calibration.testing.equality import difference
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig


@settings(max_examples=60, deadline=None)
@given(
    # Below 1e-300 there are no shares left to tell apart: such numbers have fewer digits.
    weights=st.lists(st.just(0.0) | st.floats(1e-300, 1000), min_size=1, max_size=30).filter(any),
    size=st.integers(1, 60),
    offset=st.floats(0, 1, exclude_max=True),
)
def test_a_row_is_drawn_as_often_as_its_weight_says(
    weights: list[float], size: int, offset: float
) -> None:
    exact = torch.tensor(weights, dtype=torch.float64)
    rows = drawn_by_weight(exact, size, offset)
    assert len(rows) == size
    wanted = exact / exact.sum() * size
    times = torch.bincount(rows, minlength=len(weights)).double()
    assert bool(((times - wanted).abs() < 1 + 1e-6).all())
    assert bool((times[exact == 0] == 0).all())


@given(times=st.lists(st.integers(0, 4), min_size=1, max_size=30).filter(any))
def test_whole_weights_are_how_often_rows_are_drawn(times: list[int]) -> None:
    exact = torch.tensor(times)
    rows = drawn_by_weight(exact, int(exact.sum()), 0.25)
    assert torch.bincount(rows, minlength=len(times)).tolist() == times


def problem(held_out: bool) -> Splits:
    generator = torch.Generator().manual_seed(0)

    def part(rows: int) -> Part:
        labels = torch.arange(rows) % 3
        inputs = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
        inputs += labels[:, None]
        weights = 0.5 + torch.rand(rows, generator=generator, dtype=torch.float64)
        weights[::4] = 0
        return Part(inputs, labels, weights=weights)

    train, meta = part(60), part(40)
    return Splits(train, part(40), meta if held_out else None, fit_transform(train.inputs, ()))


def spoiled(part: Part | None) -> Part | None:
    """Other labels where the weight is 0."""
    if part is None:
        return None
    assert part.weights is not None
    labels = torch.where(part.weights > 0, part.labels, (part.labels + 1) % 3)
    return part._replace(labels=labels)


@pytest.mark.parametrize(
    ("name", "batch_size"),
    [*((name, 16) for name in METHODS), ("standard", "full"), ("fl_gamma", "full")],
)
def test_every_method_follows_weights(name: str, batch_size: Any) -> None:
    method = make_learner(name, {})
    assert isinstance(method, Method)
    splits = problem(method.needs_held_out)

    def trained(given: Splits) -> TrainingRun:
        made = make_learner(name, {})
        assert isinstance(made, Method)
        config = TrainingConfig(epochs=2, batch_size=batch_size)
        run = TrainingRun(
            *(made, given),
            model="mlp",
            model_options={"widths": (4,)},
            classes=3,
            config=config,
            seed=0,
        )
        while not run.done:
            run.run_epoch()
        return run

    followed = trained(splits)
    other = trained(
        replace(
            splits,
            train=spoiled(splits.train),
            validation=spoiled(splits.validation),
            meta_validation=spoiled(splits.meta_validation),
        )
    )
    mine, theirs = (run.state_dict() | {"seconds": 0} for run in (followed, other))
    assert difference(mine, theirs) is None
    plain = trained(replace(splits, train=splits.train._replace(weights=None)))
    assert difference(mine["state"], plain.state_dict()["state"]) is not None
