"""A standalone trained classifier: rebuilt from saved values, without its training data.

A classifier is a directory with a few files: ``model.json`` (its description: inputs, classes,
transform, network or estimator, threshold), ``network.pt`` (a network's tensors) or the files of an
estimator, and ``calibrator.json`` (its calibrator); ``backbone`` has the weights of a pretrained
network, whose embeddings are the transform's input. Nothing in them is unpickled. Only the code
of the network, the estimator, the calibrator or the transform is imported: from this package,
from a library or from the user's own modules.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from calibration.calibrators import Calibrator
from calibration.calibrators.saving import load_calibrator
from calibration.data import Column
from calibration.data.columns import encode_columns
from calibration.data.saving import load_transform
from calibration.data.transforms import category_blocks
from calibration.learners import Estimator, FittedEstimator, estimator_files, make_learner
from calibration.methods import Learner, Method, make_method
from calibration.models import Encoder, FunctionalModel, backbone_of, build_embedded, encoder_of
from calibration.optimisers import Adam
from calibration.prior import Prior
from calibration.seeds import seeded
from calibration.training import PREDICTION_BATCH

DESCRIPTION, NETWORK, SAVED_CALIBRATOR = "model.json", "network.pt", "calibrator.json"
BACKBONE = "backbone"


class Named(BaseModel):
    """A registered name, or an import path, and the options to construct it with."""

    model_config = ConfigDict(frozen=True)

    name: str
    options: dict[str, Any]


class Inputs(BaseModel):
    """The form of a row: named columns, or the shape and type of one raw input.

    ``optional`` columns may be left out entirely: some of their values were missing in training,
    too. With ``by_position``, column names are made up, and an array is accepted.
    """

    model_config = ConfigDict(frozen=True)

    shape: tuple[int, ...]
    dtype: Literal["uint8", "float32", "float64"]
    columns: tuple[Column, ...] = ()
    optional: tuple[str, ...] = ()
    by_position: bool = True


class Description(BaseModel):
    """Everything that defines a classifier except its tensors or trees and its calibrator.

    It has a ``network`` or an ``estimator``; if ``embeds``, the ``network`` is the head on the
    embeddings of a pretrained family.
    ``method`` is set if the training method learned its own calibrator of the logits; ``prior``
    if probabilities are corrected for other class frequencies; ``about`` is for human readers.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    class_names: tuple[str, ...]
    inputs: Inputs
    transform: dict[str, Any]
    network: Named | None = None
    network_input: tuple[int, ...] = ()
    embeds: bool = False
    category_embedding: int = 0
    estimator: Named | None = None
    method: Named | None = None
    mixed_precision: bool = False
    threshold: float = 0.0
    prior: Prior | None = None
    about: dict[str, Any] = {}


class Prediction(NamedTuple):
    """Predicted classes (N,), their confidence (N,), and probabilities (N, K) if available."""

    classes: Tensor
    confidence: Tensor
    probabilities: Tensor | None


class _Network:
    """A network that predicts transformed inputs; thread-safe."""

    def __init__(self, description: Description, made: Named, saved: Mapping[str, Any]) -> None:
        classes = len(description.class_names)
        self._method: Method | None = None
        if description.method is not None:
            self._method = make_method(description.method.name, description.method.options)
        with seeded(0, "deployment"):  # building draws initial weights, which are not used
            module = build_embedded(
                made.name,
                made.options,
                description.network_input,
                classes,
                blocks=category_blocks(load_transform(description.transform)),
                width=description.category_embedding,
            )
        model = FunctionalModel(module)
        self._learner = Learner(
            model, Adam(), classes, samples=0, mixed_precision=description.mixed_precision
        )
        self._parameters, self._buffers = saved["parameters"], saved["buffers"]
        self._method_state = saved.get("method", {})
        self._one_at_a_time = threading.Lock()

    def logits(self, chunks: Iterable[Tensor]) -> Tensor:
        # The functional model puts the weights into its module for the duration of a call.
        with self._one_at_a_time:
            pieces = [
                self._learner.forward(self._parameters, self._buffers, chunk, training=False)[
                    0
                ].logits
                for chunk in chunks
            ]
        logits = torch.cat(pieces)
        if self._method is None:
            return logits
        return self._method.map_logits(logits, self._method_state)


class _Estimator:
    """An estimator that predicts encoded inputs."""

    def __init__(self, made: Named, classes: int, files: Mapping[str, Any]) -> None:
        estimator = make_learner(made.name, made.options)
        if not isinstance(estimator, Estimator):
            raise ValueError(f"{made.name!r} is not an estimator")
        self._fitted = FittedEstimator(estimator, (), classes)
        self._fitted.load(files)

    def logits(self, chunks: Iterable[Tensor]) -> Tensor:
        return torch.cat([self._fitted.predict(chunk) for chunk in chunks])


class Classifier:
    """A transform, a model and a calibrator, ready to predict; thread-safe.

    ``model`` is the result of ``TrainingRun.network`` or ``EstimatorTraining.files``, ``encoder``
    the pretrained network of a description that ``embeds``. Raises ``ValueError`` if the
    description names something that does not exist or does not fit the model.
    """

    def __init__(
        self,
        description: Description,
        model: Mapping[str, Any],
        calibrator: Calibrator,
        encoder: Encoder | None = None,
    ) -> None:
        self.description = description
        self.encoder = encoder
        if description.embeds and encoder is None:
            raise ValueError("model.json names a pretrained network, and its weights are not given")
        self.calibrator = calibrator
        self.classes = len(description.class_names)
        self._transform = load_transform(description.transform)
        self._model: _Network | _Estimator
        if description.estimator is not None:
            self._model = _Estimator(description.estimator, self.classes, model)
        elif description.network is not None:
            self._model = _Network(description, description.network, model)
        else:
            raise ValueError("model.json names neither a network nor an estimator")

    @classmethod
    def load(cls, directory: Path) -> Classifier:
        """Load a classifier from a directory. Raises ``ValueError`` or ``OSError`` if damaged."""
        description = Description.model_validate_json((directory / DESCRIPTION).read_text("utf-8"))
        calibrator = load_calibrator(json.loads((directory / SAVED_CALIBRATOR).read_text("utf-8")))
        if description.estimator is None:
            model = torch.load(directory / NETWORK, map_location="cpu", weights_only=True)
        else:
            names = estimator_files(description.estimator.name)
            model = {name: (directory / name).read_bytes() for name in names}
        encoder = None
        if description.embeds and description.network is not None:
            made = description.network
            weights = {"weights": str(directory / BACKBONE)}
            encoder = encoder_of(made.name, made.options | weights)
        return cls(description, model, calibrator, encoder)

    def predict(self, data: pd.DataFrame | NDArray[Any]) -> pd.DataFrame:
        """Predict rows in any form that ``encode`` accepts.

        Returns ``class`` (its name), ``confidence``, ``probabilities`` (a list in the order of
        ``class_names``; None if the calibrator calibrates only the predicted class's confidence)
        and ``abstain`` (the confidence is below the threshold), with the index of ``data``.
        """
        index = data.index if isinstance(data, pd.DataFrame) else None
        found = self.predict_raw(self.encode(data))
        named = np.array(self.description.class_names, dtype=object)[found.classes.numpy()]
        rows: list[Any] = [None] * len(named)
        return pd.DataFrame(
            {
                "class": named,
                "confidence": found.confidence.numpy(),
                "probabilities": pd.Series(
                    rows if found.probabilities is None else found.probabilities.tolist(),
                    index=index,
                    dtype=object,
                ),
                "abstain": (found.confidence < self.description.threshold).numpy(),
            },
            index=index,
        )

    def predict_raw(self, inputs: Tensor) -> Prediction:
        """Predict raw inputs."""
        logits = self.logits(inputs)
        if not len(logits):
            empty = torch.empty(0, dtype=torch.float64)
            rows = None if self.calibrator.top_label else empty.reshape(0, self.classes)
            return Prediction(torch.empty(0, dtype=torch.int64), empty, rows)
        output, prior = self.calibrator(logits), self.description.prior
        return interpret(output if prior is None else prior.corrected(output), logits)

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """The model's logits for raw inputs, as during its training."""
        return self._model.logits(map(self._prepared, inputs.split(PREDICTION_BATCH)))

    def _prepared(self, inputs: Tensor) -> Tensor:
        made = self.description.network
        if self.encoder is not None and made is not None:
            options = backbone_of(made.name, made.options)
            assert options is not None, "a description that embeds names one"
            inputs = self.encoder.embed(inputs, batch_size=options.batch_size)
        return self._transform(inputs)

    def encode(self, data: pd.DataFrame | NDArray[Any]) -> Tensor:
        """Convert a frame, by column name, or an array of numbers to raw inputs.

        Missing values and unseen categories are treated as in training. Raises
        ``ValueError`` naming the column or the shape that is wrong.
        """
        inputs = self.description.inputs
        if isinstance(data, pd.DataFrame) and inputs.columns:
            named = {column.name for column in inputs.columns} <= {str(c) for c in data.columns}
            if named or not inputs.by_position:
                return self._encode_columns(data)
        array = np.asarray(data)
        if array.dtype == object:
            array = array.astype(np.float64)
        if array.dtype.kind not in "biuf" or array.shape[1:] != inputs.shape:
            raise ValueError(
                f"inputs must be numbers of shape (N, {', '.join(map(str, inputs.shape))}), "
                f"found {array.dtype} of shape {array.shape}"
            )
        if not inputs.by_position:
            raise ValueError(
                "inputs must be a DataFrame with the columns "
                f"{', '.join(column.name for column in inputs.columns)}"
            )
        if np.isinf(array).any() or (not inputs.columns and np.isnan(array).any()):
            raise ValueError("inputs must be finite")
        return torch.from_numpy(np.ascontiguousarray(array, dtype=inputs.dtype))

    def _encode_columns(self, frame: pd.DataFrame) -> Tensor:
        inputs = self.description.inputs
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        absent = [name for name in inputs.optional if name not in frame]
        whole = frame.assign(**dict.fromkeys(absent, np.nan))
        return encode_columns(whole, inputs.columns, "inputs")


def interpret(output: Tensor, logits: Tensor) -> Prediction:
    """Turn a calibrator's output, probabilities (N, K) or confidences (N,), into predictions."""
    if output.ndim == 2:
        confidence, classes = output.max(-1)
        return Prediction(classes, confidence, output)
    return Prediction(logits.argmax(-1), output, None)
