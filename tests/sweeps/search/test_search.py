"""Studies: budgets, grids, replay with every sampler, failures, Pareto sets."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from calibration.hyperparameters import Choice, Domain, Integer, LogUniform, Uniform
from calibration.seeds import derive_seed
from sweeps.search import SAMPLERS, Result, Study, unsupported
from sweeps.search.config import SearchConfig
from sweeps.search.space import Space

SPACE = Space(
    {"weight_decay": 0.0},
    {"lr": LogUniform(1e-3, 1.0), "gamma": Uniform(0.0, 5.0), "steps": Integer(1, 20, log=True)},
)
CONDITIONAL = Space(
    {},
    {
        "lr": LogUniform(1e-3, 1.0),
        "width": Integer(1, 9),
        "loss": Choice(("ce", "focal", "dual")),
        "gamma": Uniform(0.0, 5.0),
        "kind": Choice((1, 2)),
        "margin": Integer(1, 5),
    },
    {
        "gamma": {"loss": ("focal", "dual")},
        "kind": {"loss": ("dual",)},
        "margin": {"loss": ("dual",), "kind": (2,)},
    },
)
WORDS = Space({}, {"loss": Choice(("ce", "focal")), "kind": Choice((True, False))})
ONE_NUMBER = Space({}, {"x": Uniform(0.0, 1.0)})
NO_CHOICE = Space(
    {}, {"loss": Choice(("ce",)), "gamma": Uniform(0.0, 1.0)}, {"gamma": {"loss": ("ce",)}}
)
SPACES = {
    "plain": SPACE,
    "conditional": CONDITIONAL,
    "words": WORDS,
    "one number": ONE_NUMBER,
    "no choice": NO_CHOICE,
}
QUICK = [
    (name, objectives)
    for name, sampler in SAMPLERS.items()
    for objectives in (1, 2)
    if not sampler.is_grid
    and sampler.most_trials is None
    and (objectives == 1 or sampler.several_objectives)
]


def study(
    sampler: str = "tpe",
    trials: int | None = 20,
    space: Space = SPACE,
    seed: int = 7,
    objectives: int = 1,
    **settings: Any,
) -> Study:
    objective = ["nll", "accuracy"][:objectives]
    config = SearchConfig(sampler=sampler, trials=trials, objective=objective, **settings)
    return Study(space, config, seed, "blobs/focal")


def loss(values: dict[str, Any]) -> float:
    rate, gamma = values.get("lr", 0.1), values.get("gamma", 2.0)
    rest = 0.01 * values.get("steps", 0) + 0.1 * values.get("margin", 0)
    return (math.log10(rate) + 2) ** 2 + (gamma - 3) ** 2 + rest + (values.get("loss") == "ce")


def outcome(search: Study, number: int, values: dict[str, Any]) -> Result:
    """Some trials fail and some are stopped; the second objective pulls elsewhere."""
    objectives = (loss(values), math.sin(3 * loss(values)))[: len(search.config.objective)]
    state = {3: "failed", 5: "pruned"}.get(number % 8, "done")
    return Result(objectives, objectives[0], 2.0, state)  # type: ignore[arg-type]


def done(*values: float, nll: float = 1.0, seconds: float = 1.0) -> Result:
    return Result(values, nll, seconds, "done")


def exhausted(search: Study) -> list[dict[str, Any]]:
    asked = []
    while not search.exhausted:
        number, values = search.ask()
        asked.append(values)
        search.tell(number, outcome(search, number, values))
    return asked


def replayed(search: Study, suggestions: list[dict[str, Any]]) -> Study:
    for number, values in enumerate(suggestions):
        search.replay(number, values)
        search.tell(number, outcome(search, number, values))
    return search


def generations(search: Study) -> list[int]:
    """What CMA-ES and NSGA-II note on the trials they suggest."""
    notes = [trial.system_attrs.items() for trial in search.trials()]
    return [max((v for k, v in note if k.endswith(":generation")), default=-1) for note in notes]


@pytest.mark.parametrize("space", ["plain", "conditional"])
@pytest.mark.parametrize(("sampler", "objectives"), QUICK)
def test_a_replayed_study_goes_on_like_the_uninterrupted_one(
    sampler: str, objectives: int, space: str
) -> None:
    in_generations = sampler in ("cmaes", "nsga2")
    trials = 44 if in_generations else 22

    def new() -> Study:
        return study(sampler, trials, SPACES[space], objectives=objectives)

    first = new()
    whole = exhausted(first)
    for cut in (1, trials // 2 - 1, trials - 4):
        again = replayed(new(), whole[:cut])
        assert exhausted(again) == whole[cut:]
        if in_generations:
            assert generations(again) == generations(first)
            assert max(generations(first)) >= 2
    if sampler != "random":
        at_random = exhausted(study("random", trials, SPACES[space], objectives=objectives))
        assert whole[-5:] != at_random[-5:]


@pytest.mark.parametrize("objectives", [1, 2])
def test_a_replayed_gaussian_process_goes_on_like_the_uninterrupted_one(objectives: int) -> None:
    space = Space({}, {"lr": LogUniform(1e-3, 1.0), "loss": Choice(("ce", "focal"))})
    whole = exhausted(study("gp", 9, space, objectives=objectives))
    again = replayed(study("gp", 9, space, objectives=objectives), whole[:8])
    assert exhausted(again) == whole[8:]
    assert whole[8] != exhausted(study("random", 9, space, objectives=objectives))[8]


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes", "nsga2"])
def test_suggestions_are_those_of_optunas_own_samplers(sampler: str) -> None:
    searched = {n: CONDITIONAL.searched[n] for n in ("lr", "loss", "gamma", "margin")}
    when = CONDITIONAL.conditions["gamma"]
    conditions = {"gamma": when, "margin": when} if sampler == "tpe" else {}
    search = study(sampler, 40, Space({}, searched, conditions))
    makers: dict[str, Any] = {
        "random": optuna.samplers.RandomSampler,
        "tpe": partial(
            optuna.samplers.TPESampler, n_startup_trials=5, multivariate=True, group=True
        ),
        "cmaes": optuna.samplers.CmaEsSampler,
        "nsga2": partial(optuna.samplers.NSGAIISampler, population_size=16),
    }
    own = optuna.create_study()
    while not search.exhausted:
        number, values = search.ask()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            own.sampler = makers[sampler](seed=derive_seed(7, "blobs/focal", number) % 2**32)
        trial = own.ask()
        lr = trial.suggest_float("lr", 1e-3, 1.0, log=True)
        kind = trial.suggest_categorical("loss", ("ce", "focal", "dual"))
        if kind != "ce" or not conditions:
            trial.suggest_float("gamma", 0.0, 5.0)
            trial.suggest_int("margin", 1, 5)
        assert trial.params == values
        own.tell(trial, lr)
        search.tell(number, done(lr))


def test_cmaes_goes_on_learning_when_a_conditional_hyperparameter_falls_away() -> None:
    first = (*({"loss": "focal"} for _ in range(12)), {"loss": "ce"})
    space = Space({}, CONDITIONAL.searched, CONDITIONAL.conditions, first=first)
    search = study("cmaes", 50, space)
    exhausted(search)
    learnt = generations(search)
    assert learnt[12] >= 1
    assert learnt[-1] >= learnt[12] + 3


@pytest.mark.slow
def test_another_process_suggests_the_same_whatever_its_hash_seed() -> None:
    code = f"""
from calibration.hyperparameters import Choice, Integer, LogUniform, Uniform
from sweeps.search.config import SearchConfig
from sweeps.search import Result, Study
from sweeps.search.space import Space
search = Study({CONDITIONAL!r}, SearchConfig(trials=16), 7, "blobs/focal")
while not search.exhausted:
    number, values = search.ask()
    search.tell(number, Result((values["lr"],), 1.0, 1.0, "done"))
    print(repr(values))
"""
    search = Study(CONDITIONAL, SearchConfig(trials=16), 7, "blobs/focal")
    asked = []
    while not search.exhausted:
        number, values = search.ask()
        search.tell(number, done(values["lr"]))
        asked.append(repr(values))
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.splitlines() == asked


@pytest.mark.parametrize(("sampler", "objectives"), QUICK)
def test_suggestions_of_several_workers_are_taken_over_as_they_are(
    sampler: str, objectives: int
) -> None:
    first = study(sampler, 30, CONDITIONAL, objectives=objectives)
    asked: list[dict[str, Any]] = []
    waiting: list[int] = []
    order = random.Random(0)
    while len(asked) < 23:
        waiting.append(first.asked)
        asked.append(first.ask()[1])
        if len(waiting) == 3:
            number = waiting.pop(order.randrange(3))
            first.tell(number, outcome(first, number, asked[number]))
    again = study(sampler, 30, CONDITIONAL, objectives=objectives)
    for number, values in enumerate(asked):
        again.replay(number, values)
        if (result := first.result(number)) is not None:
            again.tell(number, result)
    assert [t.params for t in again.trials()] == [t.params for t in first.trials()] == asked
    assert (again.asked, again.told) == (first.asked, first.told)
    assert again.asked > again.told
    assert again.ask()[0] == 23
    if sampler == "random":
        alone = study(sampler, 30, CONDITIONAL, objectives=objectives)
        assert exhausted(alone)[:23] == asked


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes", "nsga2"])
def test_a_raised_budget_goes_on_with_the_same_suggestions(sampler: str) -> None:
    longer = exhausted(study(sampler, 40))
    assert exhausted(study(sampler, 12)) == longer[:12]
    search = Study(SPACE, SearchConfig(sampler=sampler, trials=12), 7, "blobs/focal", extra=28)
    assert search.budget == 40
    assert exhausted(search) == longer


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("sampler", "objectives"), QUICK)
def test_every_sampler_keeps_to_every_space_and_warns_of_nothing(
    sampler: str, objectives: int, space: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = exhausted(study(sampler, 20, SPACES[space], objectives=objectives))
    for values in asked:
        assert_within(SPACES[space], values)


def assert_within(space: Space, values: dict[str, Any]) -> None:
    searched = {n: v for n, v in values.items() if n not in space.fixed}
    assert searched.keys() == {n for n in space.searched if space.active(n, searched)}
    assert space.checked(searched) == searched
    for name, value in searched.items():
        numeric = int if isinstance(space.searched[name], Integer) else float
        domain = space.searched[name]
        assert type(value) in (
            {type(v) for v in domain.values} if isinstance(domain, Choice) else {numeric}
        )


domains: st.SearchStrategy[Domain] = st.one_of(
    st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(
        lambda values: Choice(tuple(values))
    ),
    st.floats(-5, 5).map(lambda low: Uniform(low, low + 1)),
    st.floats(1e-6, 5).map(lambda low: LogUniform(low, 3 * low)),
    st.integers(1, 50).map(lambda low: Integer(low, 2 * low, log=low % 2 == 0)),
)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    searched = {f"k{i}": domain for i, domain in enumerate(draw(st.lists(domains, min_size=1)))}
    conditions: dict[str, dict[str, tuple[Any, ...]]] = {}
    switches = [n for n, d in searched.items() if isinstance(d, Choice)]
    for name in searched:
        earlier = [n for n in switches if int(n[1:]) < int(name[1:])]
        if earlier and draw(st.booleans()):
            other = draw(st.sampled_from(earlier))
            allowed = draw(st.sampled_from(searched[other].values))  # type: ignore[union-attr]
            conditions[name] = conditions.get(other, {}) | {other: (allowed,)}
    return Space({}, searched, conditions)


@settings(max_examples=15, deadline=None)
@given(space=spaces(), sampler=st.sampled_from(["random", "tpe", "cmaes", "nsga2"]))
def test_any_space_can_be_searched_and_replayed(space: Space, sampler: str) -> None:
    whole = exhausted(study(sampler, 24, space))
    for values in whole:
        assert_within(space, values)
    assert exhausted(replayed(study(sampler, 24, space), whole[:21])) == whole[21:]


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2"])
def test_samplers_find_better_settings_than_they_started_with(sampler: str) -> None:
    search = study(sampler, 90)
    found = []
    while not search.exhausted:
        number, values = search.ask()
        found.append(loss(values))
        search.tell(number, done(found[-1]))
    assert sum(found[-15:]) < 0.6 * sum(found[:15])


def test_other_seeds_and_labels_ask_for_other_points() -> None:
    first = study().ask()[1]
    assert study(seed=8).ask()[1] != first
    assert Study(SPACE, SearchConfig(), 7, "spiral/focal").ask()[1] != first
    assert study().ask()[1] == first
    own_seed = Study(SPACE, SearchConfig(seed=7), 99, "blobs/focal")
    assert own_seed.ask()[1] == first


def test_the_budget_is_kept_and_fixed_values_are_passed_on() -> None:
    search = study(trials=9)
    asked = exhausted(search)
    assert search.budget == len(asked) == 9
    assert search.finished
    assert all(values["weight_decay"] == 0.0 for values in asked)
    assert study(trials=None).budget == 12


def test_a_search_ends_when_its_time_is_spent() -> None:
    search = study("random", None, time=5)
    assert search.budget is None
    for seconds in (2.0, math.nan, 2.9):
        search.tell(search.ask()[0], done(1.0, seconds=seconds))
        assert not search.exhausted
    late, last = search.ask()[0], search.ask()[0]
    search.tell(late, Result((math.nan,), math.nan, 0.1, "failed"))
    assert search.exhausted
    assert not search.finished
    search.tell(last, done(1.0))
    assert search.finished


def test_with_trials_and_time_the_first_to_run_out_ends_it() -> None:
    assert len(exhausted(study("random", 3, time=100))) == 3
    assert len(exhausted(study("random", 30, time=7))) == 4
    assert study("random", 30, time=7).budget == 30


def test_a_grid_is_asked_for_point_by_point_and_ends() -> None:
    space = Space({}, {"gamma": Choice((1, 2, 3)), "lr": Choice((0.1, 0.01))})
    config = SearchConfig(sampler="grid", trials=100, time=1)
    search = Study(space, config, 0, "x", extra=9)
    assert search.budget == 6
    asked = [(v["gamma"], v["lr"]) for v in exhausted(search)]
    assert asked == [(g, lr) for g in (1, 2, 3) for lr in (0.1, 0.01)]
    assert search.finished
    with pytest.raises(ValueError, match="over after 6 trials"):
        search.ask()


def test_a_conditional_grid_is_replayed_and_ends_where_it_would_have() -> None:
    whole = exhausted(study("grid", None, CONDITIONAL, resolution=2))
    # lr and width have 2 × 2 points; ce 1, focal 2 (gamma), dual 2 × (1 + 2) below them.
    assert len(whole) == 4 * (1 + 2 + 2 * (1 + 2))
    again = replayed(study("grid", None, CONDITIONAL, resolution=2), whole[:17])
    assert exhausted(again) == whole[17:]


@pytest.mark.parametrize("sampler", ["grid", "tpe", "cmaes", "gp"])
@pytest.mark.parametrize("objectives", [1, 2])
def test_listed_points_are_all_that_is_tried_with_any_sampler(
    sampler: str, objectives: int
) -> None:
    points = ({"lr": 0.1, "gamma": 1}, {"lr": 0.2}, {"gamma": 2}, {"lr": 0.2, "gamma": 2})
    space = Space({"wd": 0.5}, {"lr": Choice((0.1, 0.2)), "gamma": Choice((1, 2))}, grid=points)
    search = study(sampler, 2, space, objectives=objectives)
    assert search.budget == 4
    whole = exhausted(search)
    assert whole == [{"wd": 0.5, **point} for point in points]
    again = replayed(study(sampler, 2, space, objectives=objectives), whole[:3])
    assert exhausted(again) == whole[3:]
    assert again.trials()[1].params == {"lr": 0.2}


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes", "nsga2"])
def test_known_good_points_are_asked_first_and_count(sampler: str) -> None:
    first = (
        {"lr": 0.5, "width": 3, "loss": "dual", "gamma": 1.0, "kind": 2, "margin": 4},
        {"loss": "focal", "gamma": 2.5},
        {"lr": 0.25},
    )
    space = Space({}, CONDITIONAL.searched, CONDITIONAL.conditions, first=first)
    whole = exhausted(study(sampler, 20, space))
    assert len(whole) == 20
    assert whole[0] == first[0]
    for known, values in zip(first, whole, strict=False):
        assert known.items() <= values.items()
        assert_within(space, values)
    for cut in (1, 2, 9):
        assert exhausted(replayed(study(sampler, 20, space), whole[:cut])) == whole[cut:]
    assert exhausted(study("grid", 2, space, resolution=1))[0]["lr"] != 0.5


def test_trials_without_a_finite_result_count_but_never_win() -> None:
    search = study(trials=6)
    results = [
        Result((math.nan,), 0.0, 1.0, "done"),
        Result((2.0,), 2.0, 1.0, "done"),
        Result((-math.inf,), 0.0, 1.0, "done"),
        Result((0.1,), 0.1, 1.0, "pruned"),
        Result((0.2,), 0.2, 1.0, "failed"),
        Result((), math.nan, 0.0, "failed"),
    ]
    for result in results:
        search.tell(search.ask()[0], result)
    assert search.finished
    assert (search.best(), search.front()) == (1, [1])
    assert [search.values(n) for n in range(6)] == [None, (2.0,), None, None, None, None]
    complete, fail = TrialState.COMPLETE, TrialState.FAIL
    assert [trial.state for trial in search.trials()] == [
        fail, complete, fail, TrialState.PRUNED, fail, fail,
    ]  # fmt: skip
    hopeless = study(trials=1)
    hopeless.tell(hopeless.ask()[0], Result((math.nan,), math.nan, 1.0, "failed"))
    assert (hopeless.best(), hopeless.front()) == (None, [])


def test_of_equally_good_trials_the_first_wins_whenever_it_is_told() -> None:
    search = study(trials=4)
    for _ in range(4):
        search.ask()
    for number, value in ((2, 1.0), (3, 0.5), (1, 0.5), (0, 3.0)):
        search.tell(number, done(value, nll=9.0 - number))
    assert (search.best(), search.front()) == (1, [1])


def test_accuracy_is_maximised() -> None:
    config = SearchConfig(sampler="random", objective="accuracy")
    search = Study(SPACE, config, 0, "x")
    for value in (0.7, 0.9, 0.8):
        search.tell(search.ask()[0], done(value))
    assert search.best() == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_the_pareto_set_is_that_of_the_definition(rows: list[Any], shuffler: Any) -> None:
    objective = ["error", "accuracy", "ece"]
    search = Study(SPACE, SearchConfig(sampler="random", objective=objective, trials=50), 0, "x")
    order = [search.ask()[0] for _ in rows]
    shuffler.shuffle(order)
    for number in order:
        error, accuracy, ece, nll = rows[number]
        search.tell(number, done(error, accuracy, ece, nll=nll))

    def better(a: int, b: int) -> bool:
        one, two = ((r[0], -r[1], r[2]) for r in (rows[a], rows[b]))
        return all(x <= y for x, y in zip(one, two, strict=True)) and one != two

    numbers = range(len(rows))
    front = [n for n in numbers if not any(better(other, n) for other in numbers)]
    assert search.front() == front
    assert search.best() == min(front, key=lambda n: (rows[n][3], n))


def test_nothing_to_search_needs_no_trial() -> None:
    search = study(space=Space({"lr": 0.1}, {}))
    assert search.budget == 0
    assert search.exhausted
    assert search.finished


def test_what_cannot_belong_to_the_study_is_refused() -> None:
    search = study()
    number, values = search.ask()
    with pytest.raises(ValueError, match="suggestion 3 of 'blobs/focal'; next is 1"):
        search.replay(3, values)
    with pytest.raises(ValueError, match=r"'gamma' = 7.0 lies outside its domain {uniform"):
        search.replay(1, values | {"gamma": 7.0})
    with pytest.raises(ValueError, match="does not set"):
        search.replay(1, {"lr": 0.1})
    assert search.asked == 1
    search.tell(number, done(1.0))
    for untold in (number, 5):
        with pytest.raises(ValueError, match="not waiting for a result"):
            search.tell(untold, done(1.0))


def test_what_optuna_cannot_search_is_said_with_a_remedy() -> None:
    several = SearchConfig(sampler="cmaes", objective=["error", "ece"])
    assert "nsga2" in str(unsupported(several, SPACE))
    listed = Space({}, {"lr": Choice((1,))}, grid=({"lr": 1},))
    assert unsupported(several, listed) is None
    for sampler in ("grid", "random", "tpe", "gp", "nsga2"):
        config = SearchConfig(sampler=sampler, objective=["error", "ece"])
        assert unsupported(config, CONDITIONAL) is None
    for space in SPACES.values():
        assert unsupported(SearchConfig(sampler="cmaes"), space) is None


def test_nothing_is_important_where_trials_differ_in_the_last_digit_only() -> None:
    searched = study("random", trials=6)
    for number in range(6):
        asked = searched.ask()
        assert asked is not None
        searched.tell(asked[0], Result((0.5 + (number % 2) * 2**-53,), 0.5, 1.0, "done"))
    assert searched.importance() == {}
