"""The exported model as MLflow loads it: this file is copied into the model's directory and run.

It knows nothing of sweeps: where it is loaded there are MLflow, torch and the package
``calibration``, which lies beside it.
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
        """Rebuild the classifier from its three files."""
        from calibration.deployment import Classifier

        self.classifier = Classifier.load(Path(context.artifacts["model"]).parent)

    # MLflow reads this hint, and wants one; images come as arrays all the same.
    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """The columns ``class``, ``confidence``, ``probabilities`` and ``abstain``."""
        return self.classifier.predict(model_input)


set_model(CalibratedClassifier())
