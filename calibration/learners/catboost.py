"""CatBoost (Prokhorenkova et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Integer, LogUniform
from calibration.learners.estimator import (
    LEARNERS,
    BoosterHyperparameters,
    Estimator,
    Matrix,
    Task,
    log_odds,
)


class CatBoostHyperparameters(BoosterHyperparameters):
    """Symmetric trees of ``depth`` levels, shrunk by ``learning_rate``.

    ``l2_leaf_reg`` penalises their values, and ``random_strength`` blurs the choice of splits.
    """

    learning_rate: Annotated[float, Field(gt=0, le=1), LogUniform(0.01, 0.3)] = 0.03
    depth: Annotated[int, Field(ge=1, le=16), Integer(2, 10)] = 6
    l2_leaf_reg: Annotated[float, Field(ge=0, le=1e10), LogUniform(0.5, 30.0)] = 3.0
    random_strength: Annotated[float, Field(ge=0, le=1e10), LogUniform(0.1, 10.0)] = 1.0


@LEARNERS.register("catboost")
class CatBoost(Estimator):
    """CatBoost's own boosting; categories by ordered target statistics, missing values as they are.

    CatBoost cannot be halted between two rounds and continued to the same numbers, so all rounds
    are trained at once, until its own watch over the validation rows ends them; the curve is made
    afterwards. The space is that of Gorishniy et al. (2021).
    """

    description = "boosted symmetric trees, made for categories (CatBoost)"
    Hyperparameters = CatBoostHyperparameters
    complexity = MethodComplexity.TREES
    package = "catboost"
    file = "catboost.cbm"
    wants = "native"
    all_at_once = True

    def parameters(self, task: Task) -> dict[str, Any]:
        """What CatBoost is told."""
        several = task.classes > 2
        return {
            **self.hyperparameters.model_dump(exclude={"rounds", "patience"}),
            "iterations": self.rounds,
            "loss_function": "MultiClass" if several else "Logloss",
            **({"classes_count": task.classes} if several else {}),
            "random_seed": task.seed,
            "thread_count": task.threads,
            "allow_writing_files": False,
            "logging_level": "Silent",
        }

    @property
    def rounds(self) -> int:
        """How many there are at most; after training, how many there were."""
        return self._grown or super().rounds

    _grown = 0

    def fit(self, task: Task) -> Iterator[Matrix]:
        """Train all rounds, then tell of each."""
        import catboost

        self._categorical, self._grown = task.categorical, 0
        rows = catboost.Pool(
            self._frame(task.inputs),
            task.labels,
            weight=task.weights,
            cat_features=list(task.categorical),
        )
        told, watched = self.parameters(task), None
        known = task.validation_labels >= 0
        if task.patience is not None and known.any():
            told |= {"od_type": "Iter", "od_wait": task.patience}
            watched = catboost.Pool(
                self._frame(task.validation[known]),
                task.validation_labels[known],
                cat_features=list(task.categorical),
            )
        self.model = catboost.CatBoost(told)
        self.model.fit(rows, eval_set=watched, use_best_model=False)
        self._grown = int(self.model.tree_count_)
        staged = self.model.staged_predict(
            self._pool(task.validation), prediction_type="RawFormulaVal", thread_count=1
        )
        for margins in staged:
            yield log_odds(margins)

    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        """The sum of the first trees."""
        margins: Matrix = self.model.predict(
            self._pool(inputs), "RawFormulaVal", ntree_end=rounds, thread_count=1
        )
        return log_odds(margins)

    def save(self, rounds: int) -> bytes:
        """CatBoost's binary format; its JSON does not keep every digit."""
        kept = self.model.copy()
        kept.shrink(rounds)
        with TemporaryDirectory() as place:
            path = Path(place) / self.file
            kept.save_model(str(path), format="cbm")
            return path.read_bytes()

    def load(self, content: bytes) -> None:
        """Read CatBoost's binary format."""
        import catboost

        model = catboost.CatBoost()
        with TemporaryDirectory() as place:
            path = Path(place) / self.file
            path.write_bytes(content)
            try:
                model.load_model(str(path), format="cbm")
            except catboost.CatBoostError as error:
                raise ValueError(f"{self.file}: {error}") from error
        self.model = model
        self._categorical = tuple(model.get_cat_feature_indices())

    def _pool(self, inputs: Matrix) -> Any:
        import catboost

        return catboost.Pool(self._frame(inputs), cat_features=list(self._categorical))

    def _frame(self, inputs: Matrix) -> Any:
        """Categories must be whole numbers, what is missing among them."""
        if not self._categorical:
            return inputs
        frame = pd.DataFrame(inputs)
        for place in self._categorical:
            codes = frame[place].to_numpy()
            frame[place] = np.where(np.isnan(codes), -1, codes).astype(np.int64)
        return frame
