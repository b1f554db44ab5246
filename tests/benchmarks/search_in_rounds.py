"""What suggesting in rounds (``search.batch``) costs a search, on cheap objectives.

    python -m tests.benchmarks.search_in_rounds [--repetitions 50] [--trials 64] [--batch 16]

For each objective and repetition, TPE searches with the same seed one by one, with two trials at
a time (as two workers do without rounds) and in rounds; random search is the yardstick. What is
lost is the regret of the best trial against one by one, as a share of the gap between random
search and TPE, with the upper end of its 95 % bootstrap interval over the paired repetitions.
"""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Callable

import numpy as np

from calibration.hyperparameters import Domain, LogUniform, Uniform
from sweeps.search import Result, Study
from sweeps.search.config import SearchConfig
from sweeps.search.space import Space

LIMIT = 0.10
RESAMPLES = 2000

Objective = Callable[[dict[str, float]], float]
UNIT: dict[str, Domain] = {f"x{place}": Uniform(0.0, 1.0) for place in range(4)}


def _bowl(x: dict[str, float]) -> float:
    return sum((value - 0.3) ** 2 for value in x.values())


def _valley(x: dict[str, float]) -> float:
    a, b = 4 * x["x0"] - 2, 4 * x["x1"] - 1
    return math.log1p((1 - a) ** 2 + 100 * (b - a * a) ** 2)


def _waves(x: dict[str, float]) -> float:
    return sum(10 * (v - 0.5) ** 2 + 1 - math.cos(6 * math.pi * (v - 0.5)) for v in x.values())


def _branin(x: dict[str, float]) -> float:
    a, b = 15 * x["x0"] - 5, 15 * x["x1"]
    curve = b - 5.1 / (4 * math.pi**2) * a * a + 5 / math.pi * a - 6
    return curve**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def _training(x: dict[str, float]) -> float:
    """A learning rate that diverges when it is too high, and a weight decay that matters little."""
    rate = math.log10(x["lr"])
    return (rate + 2.5) ** 2 * (6 if rate > -2 else 1) + 0.1 * (math.log10(x["decay"]) + 4) ** 2


RATES: dict[str, Domain] = {"lr": LogUniform(1e-5, 1.0), "decay": LogUniform(1e-7, 1e-1)}
OBJECTIVES: dict[str, tuple[Objective, dict[str, Domain]]] = {
    "bowl": (_bowl, UNIT),
    "valley": (_valley, {name: UNIT[name] for name in ("x0", "x1")}),
    "waves": (_waves, UNIT),
    "branin": (_branin, {name: UNIT[name] for name in ("x0", "x1")}),
    "training": (_training, RATES),
}


def best(name: str, seed: int, trials: int, **settings: object) -> float:
    """The lowest value of a search that has ``at_once`` trials running."""
    objective, searched = OBJECTIVES[name]
    at_once = int(str(settings.pop("at_once", 1)))
    config = SearchConfig.model_validate({"trials": trials, **settings})
    study = Study(Space({}, searched), config, seed, name)
    running: deque[tuple[int, float]] = deque()
    lowest = math.inf
    while not study.finished:
        while not (study.exhausted or study.waiting) and len(running) < at_once:
            number, point = study.ask()
            running.append((number, objective({k: float(v) for k, v in point.items()})))
        number, value = running.popleft()
        lowest = min(lowest, value)
        study.tell(number, Result((value,), value, 1.0, "done"))
    return lowest


def lost(name: str, repetitions: int, trials: int, batch: int) -> dict[str, tuple[float, float]]:
    """By arm, the regret lost against one by one as a share of the gap, and its upper bound."""
    arms: dict[str, dict[str, object]] = {
        "one by one": {},
        "random": {"sampler": "random"},
        "two at a time": {"at_once": 2},
        f"rounds of {batch}": {"batch": batch, "at_once": batch},
    }
    found = {
        arm: np.array([best(name, seed, trials, **settings) for seed in range(repetitions)])
        for arm, settings in arms.items()
    }
    reference, gap = found["one by one"], found["random"] - found["one by one"]
    draws = np.random.default_rng(0).integers(0, repetitions, (RESAMPLES, repetitions))
    shares = {}
    for arm in list(arms)[2:]:
        more = found[arm] - reference
        resampled = more[draws].mean(1) / gap.mean()
        shares[arm] = float(more.mean() / gap.mean()), float(np.quantile(resampled, 0.975))
    return shares


def main() -> None:
    """Print one line for every objective and arm."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    for name in OBJECTIVES:
        for arm, (share, upper) in lost(name, **vars(options)).items():
            verdict = "within" if upper <= LIMIT else "beyond"
            print(
                f"{name:10} {arm:16} loses {share:6.1%} of the gap to random search, at most "
                f"{upper:6.1%}: {verdict} {LIMIT:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
