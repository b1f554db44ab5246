"""Search spaces: every written form, every refusal, grids and Optuna's view of them."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.hyperparameters import Choice, Integer, LogUniform, Uniform
from calibration.methods import METHODS, make_method
from sweeps.schema import SearchConfig
from sweeps.search import Study, distribution
from sweeps.space import Space, extremes, grid, parse_domain, resolve


@pytest.mark.parametrize(
    ("written", "parsed"),
    [
        (3, 3),
        (0.5, 0.5),
        ("adam", "adam"),
        (True, True),
        ([1, 2], Choice((1, 2))),
        ({"choice": ["a", "b"]}, Choice(("a", "b"))),
        ({"uniform": [0, 1]}, Uniform(0.0, 1.0)),
        ({"loguniform": [1e-3, 1]}, LogUniform(1e-3, 1.0)),
        ({"integer": [1, 9]}, Integer(1, 9)),
    ],
)
def test_every_written_form(written: Any, parsed: Any) -> None:
    assert parse_domain(written) == parsed


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ([], "at least one value"),
        ([1, 1], "twice"),
        ([[1]], "among the choices"),
        ({"uniform": [1, 0]}, "low must be below high"),
        ({"uniform": [1]}, "two numbers"),
        ({"uniform": [0, "x"]}, "two numbers"),
        ({"uniform": [0, True]}, "two numbers"),
        ({"uniform": [0, math.inf]}, "finite"),
        ({"loguniform": [0, 1]}, "low > 0"),
        ({"integer": [0.5, 2]}, "whole numbers"),
        ({"unifrom": [0, 1]}, "write a value, a list"),
        ({"uniform": [0, 1], "choice": [1]}, "write a value, a list"),
        (None, "write a value, a list"),
    ],
)
def test_impossible_domains_say_what_would_be_right(written: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        parse_domain(written)
    assert "found" in str(error.value)


def test_a_spec_overrides_the_methods_default_domains() -> None:
    space = resolve("focal", {"gamma": [1, 2, 3], "lr": 0.02})
    assert space.fixed == {"lr": 0.02}
    assert space.searched["gamma"] == Choice((1, 2, 3))
    assert isinstance(space.searched["weight_decay"], LogUniform)


def test_a_grid_has_every_combination_once() -> None:
    space = Space({}, {"a": Choice(("x", "y")), "b": LogUniform(1e-4, 1e-2), "c": Integer(1, 2)})
    cells = grid(space, resolution=3)
    assert len(cells) == 2 * 3 * 2
    assert len({tuple(cell.items()) for cell in cells}) == len(cells)
    assert sorted({cell["b"] for cell in cells}) == pytest.approx([1e-4, 1e-3, 1e-2])
    assert {cell["c"] for cell in cells} == {1, 2}


@given(
    low=st.floats(1e-6, 10),
    factor=st.floats(1.001, 1e6),
    resolution=st.integers(1, 9),
    data=st.data(),
)
def test_grid_points_stay_within_their_range(
    low: float, factor: float, resolution: int, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from([Uniform, LogUniform]))
    domain = kind(low, low * factor)
    points = [cell["x"] for cell in grid(Space({}, {"x": domain}), resolution)]
    assert len(points) == resolution
    assert all(low <= p <= low * factor for p in points)
    assert points == sorted(points)


def test_optuna_sees_the_same_ranges() -> None:
    assert distribution(Uniform(0, 1)) == optuna.distributions.FloatDistribution(0, 1)
    assert distribution(LogUniform(1, 2)) == optuna.distributions.FloatDistribution(1, 2, log=True)
    assert distribution(Integer(1, 8, log=True)) == optuna.distributions.IntDistribution(
        1, 8, log=True
    )
    assert distribution(Choice((1, "b"))) == optuna.distributions.CategoricalDistribution((1, "b"))


def test_extremes_are_what_must_be_valid() -> None:
    assert extremes(Choice((3, 1))) == [3, 1]
    assert extremes(Uniform(0.0, 2.0)) == [0.0, 2.0]
    assert extremes(7) == [7]


@pytest.mark.parametrize("name", list(METHODS))
def test_every_default_space_can_be_searched_in_every_way(name: str) -> None:
    space = resolve(name, {})
    assert {"lr", "weight_decay"} <= space.searched.keys()
    for sampler in ("grid", "random", "tpe"):
        study = Study(space, SearchConfig(sampler=sampler, trials=3, resolution=2), 0, name)
        for _ in range(3):
            number, chosen = study.ask()
            make_method(name, chosen)
            study.tell(number, 1.0)


@pytest.mark.parametrize(
    ("method", "knob"),
    [
        ("bo4sc", "inner_steps"),
        ("bo4sc", "outer_lr"),
        ("bo4sc", "sharpness"),
        ("fl_gamma_sece", "bandwidth"),
        ("fl_gamma_sece", "tau"),
        ("fl_gamma_sece", "outer_lr"),
        ("ce_sece", "bandwidth"),
        ("ce_dece", "bin_temperature"),
        ("sece", "bandwidth"),
    ],
)
def test_the_knobs_that_matter_are_searched_by_default(method: str, knob: str) -> None:
    space = resolve(method, {})
    assert knob in space.searched
    values = {point[knob] for point in grid(Space({}, {knob: space.searched[knob]}), 4)}
    assert len(values) >= 3
