"""Early stopping: rungs, both rules against their definitions, and their restoration."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from calibration.hyperparameters import Uniform
from sweeps.search import Result, Study
from sweeps.search.config import SchedulerConfig, SearchConfig
from sweeps.search.space import Space
from sweeps.search.stopping import rungs

SPACE = Space({}, {"x": Uniform(0.0, 1.0), "y": Uniform(0.0, 1.0)})
EPOCHS = 30
RULES = [
    SchedulerConfig(name="asha", grace=2, reduction=3),
    SchedulerConfig(name="asha", grace=1, reduction=2),
    SchedulerConfig(name="median", grace=7),
]


def study(
    scheduler: SchedulerConfig, objective: Any = "nll", sampler: str = "random", trials: int = 200
) -> Study:
    config = SearchConfig(sampler=sampler, trials=trials, objective=objective)
    return Study(SPACE, config, 5, "x", scheduler=scheduler, epochs=EPOCHS)


def curve(values: dict[str, Any], epoch: int) -> float:
    """Best NLL so far; curves of different trials cross."""
    return values["x"] + math.exp(-epoch * (0.02 + 0.3 * values["y"]))


def trained(search: Study, number: int, values: dict[str, Any], *, obey: bool = True) -> int:
    """Trains to the end or to where the scheduler stops it; returns the last epoch."""
    for epoch in search.rungs:
        if search.report(number, epoch, curve(values, epoch)) and obey:
            search.tell(number, Result((), curve(values, epoch), epoch, "pruned"))
            return epoch
    end = curve(values, EPOCHS)
    search.tell(number, Result((end,), end, EPOCHS, "done"))
    return EPOCHS


@pytest.mark.parametrize(
    ("config", "epochs", "wanted"),
    [
        (SchedulerConfig(), 100, []),
        (SchedulerConfig(name="asha"), 100, [10, 30, 90]),
        (SchedulerConfig(name="asha", grace=1, reduction=4), 64, [1, 4, 16]),
        (SchedulerConfig(name="asha", grace=64), 64, []),
        (SchedulerConfig(name="asha"), 5, [1, 3]),
        (SchedulerConfig(name="median", grace=30), 100, [30, 60, 90]),
        (SchedulerConfig(name="median"), 20, [2, 4, 6, 8, 10, 12, 14, 16, 18]),
        (SchedulerConfig(name="median"), 1, []),
    ],
)
def test_rungs(config: SchedulerConfig, epochs: int, wanted: list[int]) -> None:
    assert rungs(config, epochs) == wanted


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from([2, 3, 4]),
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9), st.floats(0, 9)), max_size=14),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_asha_goes_on_with_the_best_share_of_every_rung(
    reduction: int, curves: list[tuple[float, ...]], workers: int, chooser: Any
) -> None:
    config = SchedulerConfig(name="asha", grace=1, reduction=reduction)
    search = Study(
        SPACE, SearchConfig(sampler="random"), 0, "x", scheduler=config, epochs=reduction**3
    )
    assert search.rungs == [1, reduction, reduction**2]
    reached: list[list[float]] = [[], [], []]
    running: dict[int, int] = {}
    while search.asked < len(curves) or running:
        if search.asked < len(curves) and len(running) < workers:
            running[search.ask()[0]] = 0
            continue
        number = chooser.choice(sorted(running))
        rung = running[number]
        value = curves[number][rung]
        reached[rung].append(value)
        allowed = max(1, len(reached[rung]) // reduction)
        goes_on = value <= sorted(reached[rung])[allowed - 1]
        assert search.report(number, search.rungs[rung], value) == (not goes_on)
        running[number] += 1
        if not goes_on or running[number] == 3:
            del running[number]
            search.tell(number, Result((value,), value, 1.0, "done" if goes_on else "pruned"))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=6, max_size=14))
def test_median_stops_what_is_worse_than_the_median_of_finished_trials(
    curves: list[tuple[float, float]],
) -> None:
    config = SchedulerConfig(name="median", grace=10)
    search = Study(SPACE, SearchConfig(sampler="random"), 0, "x", scheduler=config, epochs=30)
    finished: list[tuple[float, float]] = []
    for first, second in curves:
        best = (first, min(first, second))
        number = search.ask()[0]
        for rung, epoch in enumerate((10, 20)):
            earlier = [values[rung] for values in finished]
            stops = len(finished) >= 5 and best[rung] > statistics.median(earlier)
            assert search.report(number, epoch, best[rung]) == stops
            if stops:
                search.tell(number, Result((), best[rung], 1.0, "pruned"))
                break
        else:
            finished.append(best)
            search.tell(number, Result((best[1],), best[1], 1.0, "done"))


@pytest.mark.parametrize("config", RULES)
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_decisions_and_suggestions_after_a_replay_are_those_of_the_uninterrupted_run(
    config: SchedulerConfig, sampler: str
) -> None:
    whole = study(config, sampler=sampler)
    suggestions, ends = [], []
    for _ in range(30):
        number, values = whole.ask()
        suggestions.append(values)
        ends.append(trained(whole, number, values))
    assert 2 < ends.count(EPOCHS) < 28
    for cut in (1, 8, 20):
        again = study(config, sampler=sampler)
        for number, (values, end) in enumerate(zip(suggestions[:cut], ends, strict=False)):
            again.replay(number, values)
            for epoch in again.rungs:
                if epoch <= end:
                    again.report(number, epoch, curve(values, epoch))
            state: Any = "done" if end == EPOCHS else "pruned"
            again.tell(number, Result((curve(values, end),), 0.0, end, state))
        for number in range(cut, 30):
            assert again.ask() == (number, suggestions[number])
            assert trained(again, number, suggestions[number]) == ends[number]


@pytest.mark.parametrize("config", RULES)
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_in_rounds_it_does_not_matter_who_reaches_a_rung_first(
    config: SchedulerConfig, sampler: str
) -> None:
    def searched(workers: int, chooser: random.Random) -> list[tuple[dict[str, Any], int]]:
        rounds = SearchConfig(sampler=sampler, trials=21, batch=6)
        search = Study(SPACE, rounds, 5, "x", scheduler=config, epochs=EPOCHS)
        suggested: list[dict[str, Any]] = []
        ends = [0] * 21
        while not search.finished:
            assert not search.waiting
            first = search.asked
            suggested.append(search.ask()[1])
            while search.mid_round:
                suggested.append(search.ask()[1])
            numbers = list(range(first, search.asked))
            running: dict[int, int] = {}  # the rungs that a trial has passed
            while numbers or running:
                if numbers and len(running) < workers:
                    running[numbers.pop(0)] = 0
                    continue
                number = chooser.choice(sorted(running))
                passed, values = running[number], suggested[number]
                whole = passed == len(search.rungs)
                end = EPOCHS if whole else search.rungs[passed]
                nll = curve(values, end)
                if whole or search.report(number, end, nll):
                    search.tell(number, Result((nll,), nll, end, "done" if whole else "pruned"))
                    ends[number] = end
                    del running[number]
                else:
                    running[number] += 1
        return list(zip(suggested, ends, strict=True))

    alone = searched(1, random.Random(0))
    assert all(end == EPOCHS for _, end in alone[:6]), "nothing came before the first round"
    assert any(end < EPOCHS for _, end in alone)
    for workers in (2, 6):
        for seed in range(3):
            assert searched(workers, random.Random(seed)) == alone


@pytest.mark.parametrize("config", RULES)
def test_the_first_trial_is_never_stopped(config: SchedulerConfig) -> None:
    search = study(config)
    number, _ = search.ask()
    for epoch in search.rungs:
        assert not search.report(number, epoch, 1e9)


@pytest.mark.parametrize("config", RULES)
def test_a_rung_reported_again_changes_nothing(config: SchedulerConfig) -> None:
    once, twice = study(config), study(config)
    for _ in range(25):
        number, values = once.ask()
        twice.ask()
        for search in (once, twice):
            for epoch in search.rungs:
                stops = search.report(number, epoch, curve(values, epoch))
                if search is twice:
                    assert search.report(number, epoch, 0.0) == stops
                if stops:
                    search.tell(number, Result((), 1.0, 1.0, "pruned"))
                    break
            else:
                search.tell(number, Result((1.0,), 1.0, 1.0, "done"))
        first, second = once.trials()[number], twice.trials()[number]
        assert first.state == second.state
        assert first.intermediate_values == second.intermediate_values
        assert first.system_attrs == second.system_attrs


@pytest.mark.parametrize("config", RULES)
def test_stopped_trials_are_pruned_with_their_course_and_never_win(
    config: SchedulerConfig,
) -> None:
    search = study(config)
    for _ in range(25):
        number, values = search.ask()
        end = trained(search, number, values)
        trial = search.trials()[number]
        seen = {e: curve(values, e) for e in search.rungs if e <= end}
        assert trial.intermediate_values == seen
        assert trial.state == (TrialState.COMPLETE if end == EPOCHS else TrialState.PRUNED)
        if end < EPOCHS:
            assert search.values(number) is None
    best = search.best()
    assert best is not None
    assert search.trials()[best].state == TrialState.COMPLETE


def test_a_trial_without_a_finite_loss_is_stopped_and_counts_for_nothing() -> None:
    search = study(RULES[0])
    number, _ = search.ask()
    assert search.report(number, 2, math.nan)
    assert search.trials()[number].intermediate_values == {}
    assert not search.report(search.ask()[0], 2, 5.0)


@pytest.mark.parametrize("config", RULES)
def test_low_loss_survives_when_the_objective_is_maximised(config: SchedulerConfig) -> None:
    losses, gains = study(config), study(config, "accuracy")
    ends = []
    for search in (losses, gains):
        ends.append([trained(search, *search.ask()) for _ in range(25)])
    assert ends[0] == ends[1]


def test_several_objectives_or_no_scheduler_never_stop_a_trial() -> None:
    for search in (study(RULES[0], ["error", "ece"]), study(SchedulerConfig())):
        assert search.rungs == []
        for nll in (1.0, 9.0, math.nan):
            assert not search.report(search.ask()[0], 2, nll)


def test_only_rungs_of_running_trials_are_heard() -> None:
    search = study(RULES[0])
    good, bad = search.ask()[0], search.ask()[0]
    search.report(good, 2, 0.1)
    assert not search.report(bad, 3, 9.0)
    assert not search.report(99, 2, 9.0)
    search.tell(bad, Result((), math.nan, 1.0, "failed"))
    assert not search.report(bad, 2, 9.0)
    assert search.trials()[bad].intermediate_values == {}
