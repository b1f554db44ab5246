"""Every estimator row beside a plain Optuna script: the same search comes to the same NLL.

    python -m tests.benchmarks.bench_estimators [--seeds N] [--trials N] [--only NAME,NAME]
        [--means-on DATASET] [--points N]

The script knows nothing of calsweep but the split and the seeds: it states spaces and calls the
libraries itself. With the same seeds, space and split the best validation NLL must agree to
rounding, trained for real on breast cancer: so nothing but what is tried can make a difference.

Then both search N times with seeds of their own, the script with one sampler from beginning to end,
and the mean validation NLL may be 1 % worse at most. What a search of 8 trials finds varies by a
fifth on breast cancer, where the best NLL is close to 0, and 1 % needs hundreds of searches. They
look their trials up: real trainings at points drawn from the space, of which the nearest answers.
Differences come with their standard errors, over the pairs. The test NLL of what was chosen is
shown and not judged.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
import torch
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from sklearn.metrics import log_loss

from calibration.data import PROTOCOLS, Part, Splits, load_dataset
from calibration.seeds import derive_seed
from sweeps.search import Result, Study
from sweeps.search.config import SearchConfig
from sweeps.search.space import resolve
from tests.trained import train_sweep

AGREE_ON, MEANS_ON = "breast_cancer", "blobs-1.7"
TRIALS, ROUNDS, SEEDS, POINTS = 8, 40, 500, 64
LEAST = 1e-6
ROUNDING = 1e-5
WORSE = 0.01

Space = dict[str, BaseDistribution]
Values = dict[str, Any]
Fit = Callable[[dict[str, Any], Splits, int], list[Any]]


def _numbers(splits: Splits) -> tuple[Any, Any, Any]:
    train = splits.train
    return train.inputs.numpy(), train.labels.numpy(), splits.validation.inputs.numpy()


def logistic_regression(values: dict[str, Any], splits: Splits, seed: int) -> list[Any]:
    """On standardised inputs."""
    from sklearn.linear_model import LogisticRegression

    x, seen = (
        splits.transform(p.inputs).double().numpy() for p in (splits.train, splits.validation)
    )
    return [
        LogisticRegression(max_iter=1000, **values).fit(x, splits.train.labels).predict_proba(seen)
    ]


def random_forest(values: dict[str, Any], splits: Splits, seed: int) -> list[Any]:
    """With votes of zero lifted."""
    from sklearn.ensemble import RandomForestClassifier

    x, y, seen = _numbers(splits)
    found = RandomForestClassifier(random_state=seed, **values).fit(x, y).predict_proba(seen)
    lifted = np.maximum(found, LEAST)
    return [lifted / lifted.sum(1, keepdims=True)]


def hist_gradient_boosting(values: dict[str, Any], splits: Splits, seed: int) -> list[Any]:
    """All rounds at once."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, y, seen = _numbers(splits)
    made = HistGradientBoostingClassifier(
        max_iter=ROUNDS, early_stopping=False, random_state=seed, **values
    )
    return list(made.fit(x, y).staged_predict_proba(seen))


def lightgbm(values: dict[str, Any], splits: Splits, seed: int) -> list[Any]:
    """Through its scikit-learn interface."""
    from lightgbm import LGBMClassifier

    x, y, seen = _numbers(splits)
    fixed = {"n_jobs": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1}
    made = LGBMClassifier(n_estimators=ROUNDS, random_state=seed, bagging_freq=1, **fixed, **values)
    made.fit(x, y)
    return [made.predict_proba(seen, num_iteration=k + 1) for k in range(ROUNDS)]


def xgboost(values: dict[str, Any], splits: Splits, seed: int) -> list[Any]:
    """Through its scikit-learn interface."""
    from xgboost import XGBClassifier

    x, y, seen = _numbers(splits)
    made = XGBClassifier(n_estimators=ROUNDS, random_state=seed, n_jobs=1, **values).fit(x, y)
    return [made.predict_proba(seen, iteration_range=(0, k + 1)) for k in range(ROUNDS)]


def catboost(values: dict[str, Any], splits: Splits, seed: int) -> list[Any]:
    """Through its scikit-learn interface."""
    from catboost import CatBoostClassifier

    x, y, seen = _numbers(splits)
    fixed = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
    made = CatBoostClassifier(iterations=ROUNDS, random_seed=seed, **fixed, **values).fit(x, y)
    return list(made.staged_predict_proba(seen))


PEERS: dict[str, tuple[Fit, Space, dict[str, Any]]] = {
    "logistic_regression": (
        logistic_regression,
        {"C": FloatDistribution(1e-4, 1e4, log=True)},
        {"C": 1.0},
    ),
    "random_forest": (
        random_forest,
        {
            "n_estimators": CategoricalDistribution((100, 300)),
            "max_features": CategoricalDistribution(("sqrt", "log2", 0.25, 0.5, 0.75, 1.0)),
            "min_samples_leaf": IntDistribution(1, 50, log=True),
            "criterion": CategoricalDistribution(("gini", "entropy")),
        },
        {
            "n_estimators": 100,
            "max_features": "sqrt",
            "min_samples_leaf": 1,
            "criterion": "gini",
        },
    ),
    "hist_gradient_boosting": (
        hist_gradient_boosting,
        {
            "learning_rate": FloatDistribution(0.01, 0.3, log=True),
            "max_leaf_nodes": IntDistribution(4, 127, log=True),
            "min_samples_leaf": IntDistribution(2, 200, log=True),
            "max_features": FloatDistribution(0.3, 1.0),
        },
        {"learning_rate": 0.1, "max_leaf_nodes": 31, "min_samples_leaf": 20, "max_features": 1.0},
    ),
    "lightgbm": (
        lightgbm,
        {
            "learning_rate": FloatDistribution(0.01, 0.3, log=True),
            "num_leaves": IntDistribution(4, 127, log=True),
            "min_data_in_leaf": IntDistribution(2, 200, log=True),
            "feature_fraction": FloatDistribution(0.3, 1.0),
            "bagging_fraction": FloatDistribution(0.5, 1.0),
        },
        {
            "learning_rate": 0.1,
            "num_leaves": 31,
            "min_data_in_leaf": 20,
            "feature_fraction": 1.0,
            "bagging_fraction": 1.0,
        },
    ),
    "xgboost": (
        xgboost,
        {
            "learning_rate": FloatDistribution(0.01, 0.5, log=True),
            "max_depth": IntDistribution(2, 10),
            "min_child_weight": FloatDistribution(0.1, 100.0, log=True),
            "reg_lambda": FloatDistribution(0.1, 10.0, log=True),
            "colsample_bytree": FloatDistribution(0.5, 1.0),
            "subsample": FloatDistribution(0.5, 1.0),
        },
        {
            "learning_rate": 0.3,
            "max_depth": 6,
            "min_child_weight": 1.0,
            "reg_lambda": 1.0,
            "colsample_bytree": 1.0,
            "subsample": 1.0,
        },
    ),
    "catboost": (
        catboost,
        {
            "learning_rate": FloatDistribution(0.01, 0.3, log=True),
            "depth": IntDistribution(2, 10),
            "l2_leaf_reg": FloatDistribution(0.5, 30.0, log=True),
            "random_strength": FloatDistribution(0.1, 10.0, log=True),
        },
        {"learning_rate": 0.03, "depth": 6, "l2_leaf_reg": 3.0, "random_strength": 1.0},
    ),
}


class Losses(NamedTuple):
    """The NLL after the best round by validation rows."""

    validation: float
    test: float


class Recorded:
    """The losses of real trainings at the defaults and at points drawn from the space."""

    def __init__(self, name: str, on: str, points: int) -> None:
        fit, self.space, self.defaults = PEERS[name]
        dataset = load_dataset(on, {})
        splits = dataset.split(PROTOCOLS["honest"], 0, held_out=False)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        study.enqueue_trial(self.defaults)
        drawn = [study.ask(self.space).params for _ in range(points)]
        self._places = np.array([self._place(values) for values in drawn])
        test = dataset.test(0)
        self._losses = [losses(fit, each, splits, dataset.classes, test) for each in drawn]

    def __call__(self, values: Values) -> Losses:
        """Of the point that is nearest."""
        return self._losses[int(np.abs(self._places - self._place(values)).sum(1).argmin())]

    def _place(self, values: Values) -> list[float]:
        """In the unit cube; two categories are as far apart as the ends of a range."""
        place = []
        for name, domain in self.space.items():
            if isinstance(domain, CategoricalDistribution):
                place += [(values[name] == choice) / 2 for choice in domain.choices]
                continue
            assert isinstance(domain, FloatDistribution | IntDistribution)
            scaled = math.log if domain.log else float
            low, high = scaled(domain.low), scaled(domain.high)
            place.append((scaled(values[name]) - low) / (high - low))
        return place


def losses(fit: Fit, values: Values, splits: Splits, classes: int, test: Part) -> Losses:
    """Of one training, whose rounds predict validation and test rows at once."""
    rows = len(splits.validation.labels)
    labels = torch.cat([splits.validation.labels, test.labels]).numpy()
    both = Part(torch.cat([splits.validation.inputs, test.inputs]), torch.from_numpy(labels))
    rounds = [found.astype(float) for found in fit(values, replace(splits, validation=both), 0)]
    measured = [nll(labels[:rows], found[:rows], classes) for found in rounds]
    best = measured.index(min(measured))
    return Losses(measured[best], nll(labels[rows:], rounds[best][rows:], classes))


def nll(labels: Any, probabilities: Any, classes: int) -> float:
    """By scikit-learn."""
    return float(log_loss(labels, probabilities, labels=range(classes)))


def main(arguments: list[str] | None = None) -> int:
    """Print a line per estimator and comparison; 1 if one disagrees or a mean is worse."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of the means; 0: no means")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--only", default=",".join(PEERS))
    parser.add_argument("--means-on", default=MEANS_ON, help="the dataset of the means")
    parser.add_argument("--points", type=int, default=POINTS, help="that are trained for the means")
    options = parser.parse_args(arguments)
    trials = options.trials
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    failed = False
    print(f"{trials} trials: best validation NLL of the sweep, and of a plain script")
    for name in options.only.split(","):
        ours, plain = swept(name, 0, trials), scripted(name, 0, trials)
        agree = math.isclose(ours, plain, rel_tol=ROUNDING)
        failed |= not agree
        verdict = "the same" if agree else "OTHER"
        print(f"{name:<24} {AGREE_ON}: {ours:.8f} {plain:.8f}  {verdict}", flush=True)
        if options.seeds > 1:
            recorded = Recorded(name, options.means_on, options.points)
            pairs = [
                (searched(name, recorded, seed, trials), searched_plainly(recorded, seed, trials))
                for seed in range(1, 1 + options.seeds)
            ]
            for rows in Losses._fields:
                mine, theirs = (
                    np.array([getattr(found, rows) for found in each])
                    for each in zip(*pairs, strict=True)
                )
                more = (mine - theirs) / theirs.mean()
                by, error = more.mean(), more.std(ddof=1) / math.sqrt(len(more))
                means = f"{mine.mean():.6f} {theirs.mean():.6f} ({by:+.2%} ± {error:.2%})"
                print(
                    f"{'':<24} {options.means_on}, mean of {len(more)}, {rows}: {means}", flush=True
                )
                failed |= rows == "validation" and bool(by > WORSE)
    return int(failed)


def searched(name: str, recorded: Recorded, seed: int, trials: int) -> Losses:
    """What the search of a sweep's row chooses, one trial after the other."""
    study = Study(resolve(name, {}), SearchConfig(trials=trials), seed, name)
    found: list[Losses] = []
    while not study.finished:
        number, values = study.ask()
        found.append(recorded(values))
        value = found[-1].validation
        study.tell(number, Result((value,), value, 1.0, "done"))
    return min(found)


def searched_plainly(recorded: Recorded, seed: int, trials: int) -> Losses:
    """What the script chooses, as people write it: with one sampler from beginning to end."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=5))
    study.enqueue_trial(recorded.defaults)
    found: list[Losses] = []
    for _ in range(trials):
        trial = study.ask(recorded.space)
        found.append(recorded(trial.params))
        study.tell(trial, found[-1].validation)
    return min(found)


def swept(name: str, seed: int, trials: int) -> float:
    """What a sweep finds with this seed of its sampler."""
    rounds = "" if name in ("logistic_regression", "random_forest") else f"{{rounds: {ROUNDS}}}"
    spec = (
        f"name: peers\ndatasets: [{AGREE_ON}]\nmethods: {{{name}: {rounds}}}\n"
        f"search: {{trials: {trials}, seed: {seed}}}\nconfirm_seeds: 1\ncalibrators: []\n"
    )
    with tempfile.TemporaryDirectory() as place:
        sweep = train_sweep(Path(place), spec, limit=trials)
        found = [sweep.store.record(trial.key) for trial in sweep.plan.trials.values()]
        return min(record.validation["nll"] for record in found if record is not None)


def scripted(name: str, seed: int, trials: int) -> float:
    """What the script finds with its samplers seeded as a sweep's are."""
    fit, space, defaults = PEERS[name]
    dataset = load_dataset(AGREE_ON, {})
    splits = dataset.split(PROTOCOLS["honest"], 0, held_out=False)
    labels = splits.validation.labels.numpy()
    study = optuna.create_study()
    study.enqueue_trial(defaults)
    for number in range(trials):
        derived = derive_seed(seed, f"{AGREE_ON}/{name}", number) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=derived, n_startup_trials=5)
        trial = study.ask(space)
        found = fit(trial.params, splits, 0)
        study.tell(trial, min(nll(labels, p.astype(float), dataset.classes) for p in found))
    return float(study.best_value)


if __name__ == "__main__":
    sys.exit(main())
