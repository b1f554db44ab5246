"""Studies: budgets, grids, replay, failures."""

from __future__ import annotations

import math

import pytest

from calibration.hyperparameters import Choice, LogUniform, Uniform
from sweeps.schema import SearchConfig
from sweeps.search import Study
from sweeps.space import Space

SPACE = Space({"weight_decay": 0.0}, {"lr": LogUniform(1e-3, 1.0), "gamma": Uniform(0.0, 5.0)})


def study(sampler: str = "tpe", trials: int = 20, space: Space = SPACE, seed: int = 7) -> Study:
    return Study(space, SearchConfig(sampler=sampler, trials=trials), seed, "blobs/focal")


def objective(values: dict) -> float:
    return (math.log10(values["lr"]) + 2) ** 2 + (values["gamma"] - 3) ** 2


def exhausted(search: Study) -> list[dict]:
    asked = []
    while not search.exhausted:
        number, values = search.ask()
        asked.append(values)
        search.tell(number, objective(values))
    return asked


def test_the_budget_is_kept_and_fixed_values_are_passed_on() -> None:
    search = study(trials=9)
    asked = exhausted(search)
    assert len(asked) == 9
    assert search.finished
    assert all(values["weight_decay"] == 0.0 for values in asked)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_replayed_study_goes_on_like_the_uninterrupted_one(sampler: str) -> None:
    whole = exhausted(study(sampler))
    again = study(sampler)
    for values in whole[:11]:
        again.tell(again.replay(values), objective(values))
    assert exhausted(again) == whole[11:]


def test_tpe_finds_better_settings_than_it_started_with() -> None:
    asked = [objective(v) for v in exhausted(study(trials=60))]
    assert sum(asked[-15:]) / 15 < 0.5 * sum(asked[:15]) / 15


def test_other_seeds_and_labels_ask_for_other_points() -> None:
    first = study().ask()[1]
    assert study(seed=8).ask()[1] != first
    assert Study(SPACE, SearchConfig(), 7, "spiral/focal").ask()[1] != first
    assert study().ask()[1] == first


def test_a_grid_is_asked_for_point_by_point_and_ends() -> None:
    space = Space({}, {"gamma": Choice((1, 2, 3)), "lr": Choice((0.1, 0.01))})
    search = Study(space, SearchConfig(sampler="grid", trials=100), 0, "x")
    asked = []
    while not search.exhausted:
        number, values = search.ask()
        asked.append((values["gamma"], values["lr"]))
        search.tell(number, 1.0)
    assert asked == [(g, lr) for g in (1, 2, 3) for lr in (0.1, 0.01)]


def test_failed_trials_count_but_never_win() -> None:
    search = study(trials=3)
    for value in (math.nan, 2.0, math.inf):
        search.tell(search.ask()[0], value)
    assert search.finished
    assert search.best() == (1, 2.0)
    hopeless = study(trials=1)
    hopeless.tell(hopeless.ask()[0], math.nan)
    assert hopeless.best() is None


def test_nothing_to_search_needs_no_trial() -> None:
    search = study(space=Space({"lr": 0.1}, {}))
    assert search.budget == 0
    assert search.exhausted
    assert search.finished
