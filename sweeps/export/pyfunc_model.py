"""The exported model as MLflow loads it: this file is copied into the model's directory and run.

It does not depend on ``sweeps``: it is loaded with MLflow, torch and the package
``calibration``, which is stored beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext


class CalibratedClassifier(PythonModel):
    """Predicts the class, its confidence, all probabilities, and whether to abstain."""

    def load_context(self, context: PythonModelContext) -> None:
        """Rebuild the classifier from its files."""
        from calibration.deployment import Classifier

        self.classifier = Classifier.load(Path(context.artifacts["model"]).parent)

    # MLflow requires this type hint; images still arrive as arrays.
    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """The columns ``class``, ``confidence``, ``probabilities`` and ``abstain``."""
        return self.classifier.predict(model_input)


set_model(CalibratedClassifier())
