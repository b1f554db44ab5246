"""CatBoost (Prokhorenkova et al. 2018)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Semaphore, Thread
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

    ``l2_leaf_reg`` penalises their values, and ``random_strength`` randomises the choice of splits.
    """

    learning_rate: Annotated[float, Field(gt=0, le=1), LogUniform(0.01, 0.3)] = 0.03
    depth: Annotated[int, Field(ge=1, le=16), Integer(2, 10)] = 6
    l2_leaf_reg: Annotated[float, Field(ge=0, le=1e10), LogUniform(0.5, 30.0)] = 3.0
    random_strength: Annotated[float, Field(ge=0, le=1e10), LogUniform(0.1, 10.0)] = 1.0


class HandedRounds:
    """CatBoost's scores of the validation rows, handed over round by round.

    To CatBoost, it is a custom metric, which gets the scores after every round, and a callback,
    which may stop the training. ``begin`` trains in a thread, which waits in every round until the
    next is requested. Iterating yields the scores, and raises the exception of the training.
    """

    def __init__(self) -> None:
        self._made: SimpleQueue[Matrix | BaseException | None] = SimpleQueue()
        self._wanted = Semaphore(0)
        self._ended = False
        self._thread: Thread | None = None

    def begin(self, train: Callable[[], object]) -> None:
        """Start the training, which runs up to the first round."""

        def run() -> None:
            outcome: BaseException | None = None
            try:
                train()
            except BaseException as error:  # raised again where the rounds are requested
                outcome = error
            self._made.put(outcome)

        # The process may exit while a training waits for a request that never comes.
        self._thread = Thread(target=run, name="catboost", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Matrix]:
        while isinstance(made := self._made.get(), np.ndarray):
            yield made
            self._wanted.release()
        if made is not None:
            raise made

    def end(self) -> None:
        """Stop the training after the round in which it waits."""
        if self._thread is not None:
            self._ended = True
            self._wanted.release()
            self._thread.join()
            self._thread = None

    def __deepcopy__(self, memo: object) -> HandedRounds:
        """Return itself: CatBoost copies its arguments, but both threads must share this object."""
        return self

    def is_max_optimal(self) -> bool:
        """Metric interface; irrelevant, as the value is always 0."""
        return False

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        """Metric interface: hand over the validation rows' scores, and wait.

        Also called with the training rows, whose labels are not all 0.
        """
        if not self._ended and not np.asarray(target).any():
            columns = [np.array(values, dtype=np.float64) for values in approxes]
            self._made.put(log_odds(columns[0] if len(columns) == 1 else np.stack(columns, 1)))
            self._wanted.acquire()
        return 0.0, 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        """Metric interface; the value is not used."""
        return 0.0

    def after_iteration(self, info: Any) -> bool:
        """Callback interface: whether to continue."""
        return not self._ended


@LEARNERS.register("catboost")
class CatBoost(Estimator):
    """CatBoost's own boosting; categories by ordered target statistics, missing values natively.

    Prokhorenkova et al. 2018.

    A CatBoost model that is continued differs from one trained without interruption, so a single
    training runs in its own thread, which waits after every round until the next is requested. Of
    the search space in the published configurations of Gorishniy et al. (2021), depth, learning
    rate and penalty are searched, in ranges of our own (theirs are 3 to 10, 1e-5 to 1 and 1 to 10),
    and ``random_strength`` instead of the bagging temperature and the number of steps per leaf.
    """

    description = "boosted symmetric trees, made for categories (CatBoost)"
    Hyperparameters = CatBoostHyperparameters
    hyperparameters: CatBoostHyperparameters
    complexity = MethodComplexity.TREES
    package = "catboost"
    file = "catboost.cbm"
    wants = "native"
    weighted = True
    version = 2

    def parameters(self, task: Task) -> dict[str, Any]:
        """The parameters of CatBoost."""
        several = task.classes > 2
        return {
            **self.hyperparameters.of_library(),
            "iterations": self.rounds,
            "loss_function": "MultiClass" if several else "Logloss",
            **({"classes_count": task.classes} if several else {}),
            "random_seed": task.seed,
            "thread_count": task.threads,
            "allow_writing_files": False,
            "logging_level": "Silent",
        }

    def fit(self, task: Task) -> Iterator[Matrix]:
        """Boost, and yield the scores of every round before the next begins."""
        import catboost

        self._categorical = task.categorical
        rows = catboost.Pool(
            self._frame(task.inputs),
            task.labels,
            weight=task.weights,
            cat_features=list(task.categorical),
        )
        # The labels are not used: only the rows' scores are needed.
        watched = catboost.Pool(
            self._frame(task.validation),
            np.zeros(len(task.validation), dtype=np.int64),
            cat_features=list(task.categorical),
        )
        self._end()
        self._rounds = handed = HandedRounds()
        # CatBoost suggests numba to speed up custom metrics; this one only observes. Never reset:
        # warning filters are global to the process, and the training runs in a thread.
        warnings.filterwarnings("ignore", message="Failed to import numba")
        self.model = catboost.CatBoost(self.parameters(task) | {"eval_metric": handed})
        model, given = self.model, {"use_best_model": False, "callbacks": [handed]}
        handed.begin(lambda: model.fit(rows, eval_set=watched, **given))
        try:
            yield from handed
        finally:
            handed.end()

    _rounds: HandedRounds | None = None

    def _end(self) -> None:
        """Stop a training that is still running."""
        if self._rounds is not None:
            self._rounds.end()

    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        """The sum of the trees of the first ``rounds`` rounds."""
        self._end()
        margins: Matrix = self.model.predict(
            self._pool(inputs), "RawFormulaVal", ntree_end=rounds, thread_count=1
        )
        return log_odds(margins)

    def save(self, rounds: int) -> bytes:
        """CatBoost's binary format; its JSON format loses digits."""
        self._end()
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
        """Convert categories to integers, as CatBoost requires; missing ones become −1."""
        if not self._categorical:
            return inputs
        frame = pd.DataFrame(inputs)
        for place in self._categorical:
            codes = frame[place].to_numpy()
            frame[place] = np.where(np.isnan(codes), -1, codes).astype(np.int64)
        return frame
