"""The common base of scikit-learn's estimators: fitted in one go, stored with skops.

skops stores the parts of a model, not a pickle, and loads only types that it knows to be safe. Any
other type in a file must be listed here or come from the classifier's own package.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar
from zipfile import ZIP_DEFLATED

import numpy as np

from calibration.learners.estimator import FLOOR, Estimator, Matrix, Task

_HARMLESS = (
    "functools.partial",  # the wrapped function must be trusted as well
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    "sklearn.utils.validation.check_array",
)
"""Safe types that skops does not trust by default: arrays of numbers with methods, and a check."""


class ScikitEstimator(Estimator):
    """A classifier with ``fit`` and ``predict_proba``."""

    file: ClassVar[str] = "estimator.skops"
    weighted: ClassVar[bool] = True
    trusted: ClassVar[tuple[str, ...]] = _HARMLESS

    @classmethod
    def imports(cls) -> tuple[str, ...]:
        """The packages that prediction imports."""
        return (cls.package, "sklearn", "skops")

    @abstractmethod
    def make(self, seed: int, threads: int) -> Any:
        """The classifier before it is fitted."""

    def fit(self, task: Task) -> Iterator[Matrix]:
        """Fit in one go: one round."""
        # Imported here, like everything that prediction does not need.
        from threadpoolctl import threadpool_limits

        self.model = self.make(task.seed, task.threads)
        given = {} if task.weights is None else {"sample_weight": task.weights}
        with threadpool_limits(task.threads):
            self.model.fit(task.inputs, task.labels, **given)
        self.settle()
        yield self.scores(task.validation, 1)

    def settle(self) -> None:
        """Hook: prepare the fitted classifier for prediction."""

    def scores(self, inputs: Matrix, rounds: int) -> Matrix:
        """Logarithms of the probabilities, clipped to at least ``FLOOR``."""
        found: Matrix = np.log(np.maximum(self.model.predict_proba(inputs), FLOOR))
        return found

    def save(self, rounds: int) -> bytes:
        """The classifier in skops' format. Raises ``ValueError`` if ``load`` would reject it."""
        import skops.io

        content: bytes = skops.io.dumps(self.model, compression=ZIP_DEFLATED)
        self._check_types(content)
        return content

    def load(self, content: bytes) -> None:
        """Load the classifier. Raises ``ValueError`` if it contains an untrusted type."""
        import skops.io

        self.model = skops.io.loads(content, trusted=self._check_types(content))

    def trusts(self, name: str) -> bool:
        """Whether a type or function, by its dotted name, may be part of a stored classifier."""
        return name in self.trusted

    def _check_types(self, content: bytes) -> list[str]:
        import skops.io

        found: list[str] = skops.io.get_untrusted_types(data=content)
        strange = [name for name in found if not self.trusts(name)]
        if strange:
            raise ValueError(
                f"the stored classifier holds {', '.join(strange)}, which {type(self).__name__} "
                "does not trust"
            )
        return found
