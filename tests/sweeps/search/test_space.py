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
from sweeps.search import Result, Study
from sweeps.search.config import SearchConfig
from sweeps.search.domains import parse_hyperparameter
from sweeps.search.guided import distribution
from sweeps.search.space import Space, extremes, grid, grid_size, resolve


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
        ({"integer": [1, 100], "log": True}, Integer(1, 100, log=True)),
        ({"integer": [0, 9], "log": False, "when": {"a": 1}}, Integer(0, 9)),
        ({"choice": [1, 2], "when": {"a": ["x", "y"]}}, Choice((1, 2))),
    ],
)
def test_every_written_form(written: Any, parsed: Any) -> None:
    assert parse_hyperparameter(written)[0] == parsed


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
        ([1, True], "twice"),
        ({"uniform": [-1e308, 1e308]}, "distance must be finite"),
        ({"uniform": [0, 10**400]}, "below 1e308"),
        ({"integer": [0, 10**30]}, "whole numbers go up to"),
        ({"integer": [0, 5], "log": True}, "low ≥ 1"),
        ({"integer": [1, 5], "log": "yes"}, "true or false"),
        ({"uniform": [1, 5], "log": True}, "write a value, a list"),
        ({"when": {"a": 1}}, "write a value, a list"),
        ({"choice": [1], "when": {}}, "other_hyperparameter"),
        ({"choice": [1], "when": "a"}, "other_hyperparameter"),
        ({"choice": [1], "when": {"a": []}}, "a list of values"),
        ({"choice": [1], "when": {"a": [[1]]}}, "a list of values"),
        ({"choice": [1], "when": {3: 1}}, "another hyperparameter's name"),
    ],
)
def test_impossible_domains_say_what_would_be_right(written: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        parse_hyperparameter(written)
    assert "found" in str(error.value)


def test_a_spec_overrides_the_methods_default_domains() -> None:
    space = resolve("focal", {"gamma": [1, 2, 3], "lr": 0.02})
    assert space.fixed == {"lr": 0.02}
    assert space.searched["gamma"] == Choice((1, 2, 3))
    assert isinstance(space.searched["weight_decay"], LogUniform)


def test_a_default_domain_may_depend_on_another_hyperparameter() -> None:
    descent, adam = (resolve("bo4sc", {"outer_optimiser": name}) for name in ("gd", "adam"))
    assert resolve("bo4sc", {}).searched == descent.searched
    assert descent.searched["outer_lr"] == LogUniform(0.03, 15)
    assert adam.searched["outer_lr"] == LogUniform(0.001, 0.1)
    assert adam.searched["inner_steps"] == Integer(1, 20, log=True)
    restarted = resolve("bo4sc", {"restart": "initial", "outer_lr": [1.0, 2.0]})
    assert restarted.searched["inner_steps"] == Integer(50, 200, log=True)
    assert restarted.searched["outer_lr"] == Choice((1.0, 2.0))


def test_a_default_domain_cannot_depend_on_what_is_searched() -> None:
    both = {"outer_optimiser": ["gd", "adam"]}
    with pytest.raises(ValueError, match="'outer_lr': its default range depends on 'outer_opt"):
        resolve("bo4sc", both)
    space = resolve("bo4sc", both | {"outer_lr": {"loguniform": [0.01, 0.1]}})
    assert space.searched["outer_lr"] == LogUniform(0.01, 0.1)


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
            study.tell(number, Result((1.0,), 1.0, 1.0, "done"))


@pytest.mark.parametrize(
    ("method", "hyperparameter"),
    [
        ("bo4sc", "inner_steps"),
        ("bo4sc", "outer_lr"),
        ("bo4sc", "sharpness"),
        ("fl_gamma_sece", "bandwidth"),
        ("fl_gamma_sece", "outer_lr"),
        ("fl_gamma_sece", "outer_beta2"),
        ("ce_sece", "bandwidth"),
        ("ce_dece", "bin_temperature"),
        ("sece", "bandwidth"),
    ],
)
def test_the_hyperparameters_that_matter_are_searched_by_default(
    method: str, hyperparameter: str
) -> None:
    space = resolve(method, {})
    assert hyperparameter in space.searched
    values = {
        point[hyperparameter]
        for point in grid(Space({}, {hyperparameter: space.searched[hyperparameter]}), 4)
    }
    assert len(values) >= 3


def test_tau_is_searched_in_the_papers_form_alone() -> None:
    of_paper, of_rate = {"tau", "weight_lr"}, {"outer_lr"}
    names = of_paper | of_rate
    assert resolve("fl_gamma_sece", {}).searched.keys() & names == of_rate
    paper = resolve("fl_gamma_sece", {"parametrisation": "paper"})
    assert paper.searched.keys() & names == of_paper
    assert not paper.conditions
    both = resolve("fl_gamma_sece", {"parametrisation": ["rate", "paper"]})
    assert {n: both.conditions[n]["parametrisation"] for n in names} == {
        "tau": ("paper",),
        "weight_lr": ("paper",),
        "outer_lr": ("rate",),
    }
    for point in grid(both, 2):
        expected = of_paper if point["parametrisation"] == "paper" else of_rate
        assert point.keys() & names == expected
    for written in (0.1, {"loguniform": [0.1, 1]}):
        with pytest.raises(ValueError, match="'tau': has an effect only when parametrisation: pap"):
            resolve("fl_gamma_sece", {"tau": written})


MIXED = {
    "calibration": ["dece", "mmce"],
    "weighting": {"choice": ["fixed", "meta"], "when": {"calibration": "dece"}},
    "outer_lr": {"loguniform": [1e-3, 1e-1], "when": {"weighting": "meta"}},
    "lambda2": 0.5,
    "lambda3": {"uniform": [0, 1], "when": {"lambda2": [0.5, 1]}},
    "lr": 0.01,
    "base": "ce",
    "weight_decay": 0.0,
}


def test_conditions_are_closed_over_the_chain_and_what_always_holds_is_dropped() -> None:
    space = resolve("multi_objective", MIXED)
    assert space.conditions == {
        "weighting": {"calibration": ("dece",)},
        "outer_lr": {"calibration": ("dece",), "weighting": ("meta",)},
    }
    order = list(space.searched)
    assert order.index("calibration") < order.index("weighting") < order.index("outer_lr")
    assert space.active("lambda3", {})
    assert space.active("outer_lr", {"calibration": "dece", "weighting": "meta"})
    assert not space.active("outer_lr", {"calibration": "mmce", "weighting": "meta"})
    assert not space.active("outer_lr", {"calibration": "dece"})


def test_controlling_hyperparameters_come_first_though_the_method_names_them_last() -> None:
    hyperparameters = {
        "lambda2": {"uniform": [0, 1], "when": {"calibration": "mmce"}},
        "calibration": {"choice": ["dece", "mmce"], "when": {"weighting": ["meta", "fixed"]}},
        "weighting": ["fixed", "scheduled", "meta"],
    }
    space = resolve("multi_objective", hyperparameters)
    order = list(space.searched)
    assert order.index("weighting") < order.index("calibration") < order.index("lambda2")
    assert {"lambda2" in cell for cell in grid(space, 2)} == {True, False}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"weighting": {"choice": ["fixed"], "when": {"lam": 1}}},
            "'weighting'.*unknown hyperparameter",
        ),
        ({"weighting": {"choice": ["fixed"], "when": {"lambda": 1}}}, "did you mean 'lambda[23]'"),
        ({"lambda3": {"uniform": [0, 1], "when": {"lambda2": 3}}}, "'lambda2' is always 0.5"),
        ({"lambda3": {"uniform": [0, 1], "when": {"lr": 3}}}, "'lr' is always 0.01"),
        ({"lambda3": {"uniform": [0, 1], "when": {"calibration": "x"}}}, "never hold.*choice"),
        ({"lambda3": {"uniform": [0, 1], "when": {"outer_lr": 0.01}}}, "almost never"),
        ({"calibration": {"choice": ["dece"], "when": {"calibration": "dece"}}}, "→"),
        (
            {"calibration": {"choice": ["dece"], "when": {"weighting": "meta"}}},
            "leads back to itself: (calibration → weighting|weighting → calibration) → ",
        ),
        (
            {"lambda3": {"uniform": [0, 1], "when": {"calibration": "mmce", "weighting": "meta"}}},
            "'lambda3'.*'calibration' would have to be",
        ),
    ],
)
def test_conditions_that_cannot_work_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        resolve("multi_objective", MIXED | changed)


def test_a_conditional_grid_has_only_active_hyperparameters_and_each_point_once() -> None:
    space = resolve("multi_objective", MIXED)
    cells = grid(space, 3)
    # three values of lambda3; mmce alone, dece with fixed, dece with meta and three rates
    assert len(cells) == grid_size(space, 3) == 3 * (1 + 1 + 3)
    assert len({tuple(sorted(cell.items())) for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.keys() == {n for n in space.searched if space.active(n, cell)}


@given(st.data(), st.integers(1, 3))
def test_the_size_of_any_grid_is_known_without_building_it(
    data: st.DataObject, resolution: int
) -> None:
    searched: dict[str, Any] = {}
    conditions: dict[str, Any] = {}
    for index in range(data.draw(st.integers(1, 5))):
        name = f"k{index}"
        size = data.draw(st.integers(1, 3))
        searched[name] = data.draw(
            st.sampled_from([Choice(tuple(range(size))), Uniform(0, 1), Integer(0, size)])
        )
        switches = [n for n, d in searched.items() if not isinstance(d, Uniform) and n != name]
        if switches and data.draw(st.booleans()):
            other = data.draw(st.sampled_from(switches))
            allowed = data.draw(st.lists(st.integers(0, 3), min_size=1, unique=True))
            conditions[name] = conditions.get(other, {}) | {other: tuple(allowed)}
    space = Space({}, searched, conditions)
    assert grid_size(space, resolution) == len(grid(space, resolution))


def test_the_size_of_an_astronomic_grid_is_known_too() -> None:
    searched = {f"k{i}": Integer(1, 1000) for i in range(9)}
    conditions = {"k8": {"k0": (1,)}}
    assert grid_size(Space({}, searched, conditions), 1000) == 999 * 1000**7 + 1000**8


def test_a_listed_grid_replaces_the_search_of_everything_else() -> None:
    points = [{"lr": 0.1, "gamma": 1}, {"lr": 0.5}, {"gamma": 3.5}]
    space = resolve("focal", {"weight_decay": 0.1}, grid=points)
    assert space.fixed == {"weight_decay": 0.1}
    assert space.searched == {"lr": Choice((0.1, 0.5)), "gamma": Choice((1, 3.5))}
    assert grid(space, 99) == list(space.grid) == points
    assert grid_size(space, 99) == 3


@pytest.mark.parametrize(
    ("hyperparameters", "points", "words"),
    [
        ({}, [{}], r"grid\[0\]: found an empty point"),
        ({}, [{"lr": 0.1}, {"lr": 0.1}], r"grid\[1\]: .* twice"),
        ({}, [{"lr": 0.1}, {"lr": -1}], r"grid\[1\]: .*'lr' = -1"),
        ({}, [{"lr": [0.1]}], r"grid\[0\]: .*'lr'"),
        ({}, [{"gama": 1}], "did you mean 'gamma'"),
        ({"lr": 0.2}, [{"lr": 0.1}], "'lr' is fixed at 0.2"),
        ({"lr": [0.2, 0.3]}, [{"lr": 0.1}], r"'lr' = 0.1 lies outside .*choice: \[0.2, 0.3\]"),
        ({"lr": [0.2, 0.3]}, [{"gamma": 1}], "no point of the grid sets it"),
        ({"lr": {"choice": [0.2], "when": {"gamma": 1}}}, [{"lr": 0.2}], "no 'when'"),
    ],
)
def test_listed_points_that_cannot_be_tried_are_refused(
    hyperparameters: dict[str, Any], points: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        resolve("focal", hyperparameters, grid=points)


def test_a_listed_grid_within_written_domains_is_fine_but_has_no_first_points() -> None:
    space = resolve("focal", {"lr": [0.2, 0.3]}, grid=[{"lr": 0.3}])
    assert space.searched == {"lr": Choice((0.3,))}
    with pytest.raises(ValueError, match="leave 'try_first' out"):
        resolve("focal", {}, grid=[{"lr": 0.3}], try_first=[{"lr": 0.3}])


def test_known_good_points_take_their_domains_types() -> None:
    hyperparameters = {"inner_steps": {"integer": [1, 9]}, "lr": [0.1, 1.0]}
    points = [{"outer_lr": 2, "inner_steps": 5.0, "lr": 1}, {}]
    first = resolve("bo4sc", hyperparameters, try_first=points).first
    assert first == ({"outer_lr": 2.0, "inner_steps": 5, "lr": 1.0}, {})
    assert [type(v) for v in first[0].values()] == [float, int, float]


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"lambda3": 2}, r"try_first\[0\]: 'lambda3' = 2 .*{uniform: \[0, 1\]}"),
        ({"lambda3": True}, "'lambda3' = True lies outside"),
        ({"lambda3": "x"}, "'lambda3' = 'x' lies outside"),
        ({"lambda3": math.nan}, "'lambda3' = nan lies outside"),
        ({"calibration": "ece"}, "{choice: .*'dece', 'mmce'"),
        ({"lr": 0.01}, "'lr' is fixed at 0.01"),
        ({"lambda": 1}, "not searched; did you mean 'lambda3'"),
        ({"outer_lr": 0.01}, "only when calibration: 'dece' and weighting: 'meta'"),
        ({"calibration": "mmce", "weighting": "meta"}, "only when calibration: 'dece'"),
    ],
)
def test_known_good_points_outside_the_space_are_refused(point: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        resolve("multi_objective", MIXED, try_first=[point])


@pytest.mark.parametrize(
    ("hyperparameters", "words"),
    [
        ({"gama": 1}, "unknown hyperparameter 'gama'; did you mean 'gamma'"),
        ({"gamma": -1}, "'gamma' = -1"),
        ({"gamma": [1, "x"]}, "'gamma' = 'x'"),
        ({"gamma": {"uniform": [0, 1000]}}, "'gamma' = 1000"),
        ({"gamma": {"uniform": [1, 0]}}, "hyperparameter 'gamma': found .*low must be below high"),
        ({"lr": math.inf}, "'lr' = inf"),
    ],
)
def test_values_the_method_refuses_are_refused(hyperparameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        resolve("focal", hyperparameters)


def test_encodings_of_a_table_are_searched_like_any_other_hyperparameter() -> None:
    assert not {"numeric_inputs", "input_bins"} & resolve("standard", {}).searched.keys()
    written = {"lr": 0.1, "weight_decay": 0.0, "category_embedding": [0, 8]}
    encodings = {"numeric_inputs": ["standard", "piecewise"], "input_bins": [8, 32]}
    points = grid(resolve("standard", written | encodings), 1)
    assert len(points) == 2 * (1 + 2)  # input_bins only beside piecewise
    for point in points:
        assert ("input_bins" in point) == (point["numeric_inputs"] == "piecewise")
        make_method("standard", point)
