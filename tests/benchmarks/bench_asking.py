"""What asking for several suggestions at once costs a search, on cheap objectives.

    python -m tests.benchmarks.bench_asking [--repetitions 50] [--trials 64] [--only NAME,NAME]

TPE searches every objective one by one, with several trials running (without rounds, as so many
workers do) and in rounds (``search.batch``), all with the same seeds; random search is the
yardstick. What an arm loses is the mean regret of its best trial beyond that of one by one, as a
share of the gap between random search and one by one. In brackets, its 95 % upper bound: the
quantile of a bootstrap over the repetitions, which stay paired.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from calibration.data import PROTOCOLS, load_dataset
from calibration.hyperparameters import Choice, Integer, LogUniform, Uniform, Value
from sweeps.search import Result, Study
from sweeps.search.config import SearchConfig
from sweeps.search.space import Space

LIMIT = 0.10
LEVEL = 0.95
RESAMPLES = 4000

Point = Mapping[str, Value]
Regrets = NDArray[np.float64]


@dataclass(frozen=True)
class Arm:
    """How a search is asked: how many trials run at once, in rounds of how many, by whom."""

    name: str
    at_once: int = 1
    batch: int | None = None
    sampler: str = "tpe"


ONE_BY_ONE, RANDOM = Arm("one by one"), Arm("random search", sampler="random")
ARMS = (Arm("2 at a time", 2), *(Arm(f"rounds of {n}", n, batch=n) for n in (4, 8, 16)))


def _number(point: Point, name: str) -> float:
    return float(point[name])


def _decades(point: Point, name: str) -> float:
    return math.log10(float(point[name]))


def rates(x: Point) -> float:
    """A learning rate that diverges when it is too high, and a weight decay that matters little."""
    rate = _decades(x, "lr")
    return (rate + 2.5) ** 2 * (6 if rate > -2 else 1) + 0.1 * (_decades(x, "decay") + 4) ** 2


def network(x: Point) -> float:
    """Five hyperparameters of a network: the best rate falls with depth, dropout helps if wide."""
    layers, width = _number(x, "layers"), math.log2(_number(x, "width"))
    rate = _decades(x, "lr") + 2 + 0.3 * layers
    dropout = _number(x, "dropout") - 0.05 * max(0.0, width - 5)
    activation = {"relu": 0.1, "gelu": 0.0, "tanh": 0.4}[str(x["activation"])]
    size = 0.1 * (layers - 2.6) ** 2 + 0.05 * (width - 7) ** 2
    return rate**2 + 4 * dropout**2 + size + activation


def optimiser(x: Point) -> float:
    """SGD is best at another rate than Adam, and by a little if its momentum is right."""
    rate = _decades(x, "lr")
    if x["optimiser"] == "sgd":
        best = -1 - 2 * (_number(x, "momentum") - 0.9)  # more momentum wants a lower rate
        return (rate - best) ** 2 + 3 * (_number(x, "momentum") - 0.9) ** 2
    return 0.05 + (rate + 3) ** 2 + 0.1 * (_decades(x, "epsilon") + 6) ** 2


def valley(x: Point) -> float:
    """The logarithm of Rosenbrock's function: two rates that must fit each other."""
    a, b = 4 * _number(x, "a") - 2, 4 * _number(x, "b") - 1
    return math.log1p((1 - a) ** 2 + 100 * (b - a * a) ** 2)


def branin(x: Point) -> float:
    """Three minima, equally low."""
    a, b = 15 * _number(x, "a") - 5, 15 * _number(x, "b")
    curve = b - 5.1 / (4 * math.pi**2) * a * a + 5 / math.pi * a - 6
    return curve**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def waves(x: Point) -> float:
    """Rastrigin's function: many minima, in four dimensions."""
    return sum(
        10 * (v - 0.5) ** 2 + 1 - math.cos(6 * math.pi * (v - 0.5)) for v in map(float, x.values())
    )


def kernel(x: Point) -> float:
    """A real training: the validation NLL of a kernel ridge classifier of breast cancer."""
    among, between, labels, unseen = _breast_cancer()
    width, rows = _number(x, "width"), len(labels)
    if x["kernel"] == "laplace":
        among, between = np.sqrt(among), np.sqrt(between)
    ridge = _number(x, "ridge") * np.eye(rows)
    fitted = np.linalg.solve(np.exp(-width * among) + ridge, labels)
    odds = _number(x, "scale") * (np.exp(-width * between) @ fitted)
    return float(np.logaddexp(0, -unseen * odds).mean())


@cache
def _breast_cancer() -> tuple[Regrets, Regrets, Regrets, Regrets]:
    """Squared distances among training rows and from validation rows to them; both's labels."""
    splits = load_dataset("breast_cancer", {}).split(PROTOCOLS["honest"], 0, held_out=False)
    seen, unseen = (
        splits.transform(part.inputs).double().numpy() for part in (splits.train, splits.validation)
    )
    seen = seen[:120]
    signs = [2.0 * part.labels.numpy() - 1 for part in (splits.train, splits.validation)]
    among, between = (((rows[:, None] - seen) ** 2).mean(-1) for rows in (seen, unseen))
    return among, between, signs[0][: len(seen)], signs[1]


UNIT = Uniform(0.0, 1.0)
RATE = LogUniform(1e-5, 1.0)
OBJECTIVES: dict[Callable[[Point], float], Space] = {
    rates: Space({}, {"lr": RATE, "decay": LogUniform(1e-7, 1e-1)}),
    network: Space(
        {},
        {
            "lr": RATE,
            "layers": Integer(1, 6),
            "width": Integer(8, 1024, log=True),
            "activation": Choice(("relu", "gelu", "tanh")),
            "dropout": Uniform(0.0, 0.8),
        },
    ),
    optimiser: Space(
        {},
        {
            "optimiser": Choice(("sgd", "adam")),
            "lr": RATE,
            "momentum": Uniform(0.0, 0.99),
            "epsilon": LogUniform(1e-10, 1e-2),
        },
        conditions={"momentum": {"optimiser": ("sgd",)}, "epsilon": {"optimiser": ("adam",)}},
    ),
    valley: Space({}, {"a": UNIT, "b": UNIT}),
    branin: Space({}, {"a": UNIT, "b": UNIT}),
    waves: Space({}, dict.fromkeys("abcd", UNIT)),
    kernel: Space(
        {},
        {
            "kernel": Choice(("gauss", "laplace")),
            "width": LogUniform(1e-3, 1e2),
            "ridge": LogUniform(1e-6, 1e2),
            "scale": LogUniform(0.1, 100.0),
        },
    ),
}


def best(objective: Callable[[Point], float], arm: Arm, seed: int, trials: int) -> float:
    """The lowest value that a search finds; of those running, the first begun ends first."""
    config = SearchConfig(sampler=arm.sampler, trials=trials, batch=arm.batch)
    study = Study(OBJECTIVES[objective], config, seed, objective.__name__)
    running: deque[tuple[int, float]] = deque()
    lowest = math.inf
    while not study.finished:
        while not (study.exhausted or study.waiting) and len(running) < arm.at_once:
            number, point = study.ask()
            running.append((number, objective(point)))
        number, value = running.popleft()
        lowest = min(lowest, value)
        study.tell(number, Result((value,), value, 1.0, "done"))
    return lowest


def resampled_shares(more: Regrets, gap: Regrets) -> tuple[float, Regrets]:
    """What is lost as a share of the mean gap, and the same of every resample of what is lost."""
    draws = np.random.default_rng(0).integers(0, len(more), (RESAMPLES, len(more)))
    return float(more.mean() / gap.mean()), more[draws].mean(1) / gap.mean()


def main(arguments: list[str] | None = None) -> int:
    """Print a line for every arm and objective; 1 if TPE is no better than random search."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--only", default=",".join(each.__name__ for each in OBJECTIVES))
    options = parser.parse_args(arguments)
    chosen = [each for each in OBJECTIVES if each.__name__ in options.only.split(",")]
    everywhere: dict[Arm, list[tuple[float, Regrets]]] = {arm: [] for arm in ARMS}
    blind = False
    print(
        f"asking, {options.trials} trials, {options.repetitions} repetitions: lost share of the "
        f"gap between random search and TPE one by one (its {LEVEL:.0%} upper bound)"
    )
    for objective in chosen:
        found = {
            arm: np.array(
                [best(objective, arm, seed, options.trials) for seed in range(options.repetitions)]
            )
            for arm in (ONE_BY_ONE, RANDOM, *ARMS)
        }
        gap = found[RANDOM] - found[ONE_BY_ONE]
        blind |= bool(gap.mean() <= 0)
        lowest = f"{found[ONE_BY_ONE].mean():.4g} one by one, {found[RANDOM].mean():.4g} at random"
        print(f"{objective.__name__}: mean of the lowest {lowest}", flush=True)
        for arm in ARMS:
            everywhere[arm].append(resampled_shares(found[arm] - found[ONE_BY_ONE], gap))
            _show(arm, *everywhere[arm][-1])
    print(f"mean of {len(chosen)} objectives")
    for arm, shares in everywhere.items():
        _show(arm, float(np.mean([s for s, _ in shares])), np.mean([r for _, r in shares], axis=0))
    return int(blind)


def _show(arm: Arm, share: float, resampled: Regrets) -> None:
    upper = float(np.quantile(resampled, LEVEL))
    verdict = "within" if upper <= LIMIT else "beyond"
    print(f"  {arm.name:<14} {share:+7.1%} ({upper:+7.1%}) {verdict} {LIMIT:.0%}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
