"""Every estimator row beside a plain Optuna script: the same search comes to the same NLL.

    python -m tests.benchmarks.bench_estimators [--seeds N] [--trials N] [--only NAME,NAME]

The script knows nothing of calsweep but the split and the seeds: it states spaces and calls the
libraries itself. With the same seeds, space and split the best validation NLL must agree to
rounding; with ``--seeds`` both search N times with seeds of their own, the script with one sampler
from beginning to end, and the sweeps' mean may be 1 % worse at most. A search of a few trials finds
something else with every seed: the difference of the means comes with its standard error, without
which it says little.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

from calibration.data import PROTOCOLS, Splits, load_dataset
from calibration.seeds import derive_seed
from tests.trained import train_sweep

DATASET, TRIALS, ROUNDS, PATIENCE = "breast_cancer", 8, 40, 50
LEAST = 1e-6
ROUNDING = 1e-5
WORSE = 0.01

Space = dict[str, BaseDistribution]
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


def main(arguments: list[str] | None = None) -> int:
    """Print a line per estimator; 1 if one disagrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--only", default=",".join(PEERS))
    options = parser.parse_args(arguments)
    seeds, trials = options.seeds, options.trials
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    failed = False
    print(f"{DATASET}, {trials} trials: best validation NLL of the sweep, and of a plain script")
    for name in options.only.split(","):
        ours, plain = swept(name, 0, trials), scripted(name, 0, trials, one_sampler=False)
        agree = math.isclose(ours, plain, rel_tol=ROUNDING)
        failed |= not agree
        verdict = "the same" if agree else "OTHER"
        print(f"{name:<24} {ours:.8f} {plain:.8f}  {verdict}", flush=True)
        if seeds:
            mine = np.array([swept(name, 1 + s, trials) for s in range(seeds)])
            theirs = np.array(
                [scripted(name, 1 + s, trials, one_sampler=True) for s in range(seeds)]
            )
            error = math.hypot(*(found.std(ddof=1) for found in (mine, theirs))) / seeds**0.5
            by, error = mine.mean() / theirs.mean() - 1, error / theirs.mean()
            failed |= bool(by > WORSE)
            means = f"{mine.mean():.6f} {theirs.mean():.6f}"
            print(f"{'':<24} mean of {seeds}: {means} ({by:+.1%} ± {error:.1%})", flush=True)
    return int(failed)


def swept(name: str, seed: int, trials: int) -> float:
    """What a sweep finds with this seed of its sampler."""
    rounds = "" if name in ("logistic_regression", "random_forest") else f"{{rounds: {ROUNDS}}}"
    spec = (
        f"name: peers\ndatasets: [{DATASET}]\nmethods: {{{name}: {rounds}}}\n"
        f"search: {{trials: {trials}, seed: {seed}}}\nconfirm_seeds: 1\ncalibrators: []\n"
    )
    with tempfile.TemporaryDirectory() as place:
        sweep = train_sweep(Path(place), spec, limit=trials)
        found = [sweep.store.record(trial.key) for trial in sweep.plan.trials.values()]
        return min(record.validation["nll"] for record in found if record is not None)


def scripted(name: str, seed: int, trials: int, *, one_sampler: bool) -> float:
    """What the script finds; with ``one_sampler`` as people write it, else seeded as sweeps are."""
    fit, space, defaults = PEERS[name]
    dataset = load_dataset(DATASET, {})
    splits = dataset.split(PROTOCOLS["honest"], 0, held_out=False)
    labels = splits.validation.labels.numpy()
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=5))
    study.enqueue_trial(defaults)
    for number in range(trials):
        if not one_sampler:
            derived = derive_seed(seed, f"{DATASET}/{name}", number) % 2**32
            study.sampler = optuna.samplers.TPESampler(seed=derived, n_startup_trials=5)
        trial = study.ask(space)
        found = fit(trial.params, splits, 0)
        losses = [log_loss(labels, p.astype(float), labels=range(dataset.classes)) for p in found]
        study.tell(trial, min(losses))
    return float(study.best_value)


if __name__ == "__main__":
    sys.exit(main())
