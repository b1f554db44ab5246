"""Networks to train: registered ones by name, and the user's own."""

from __future__ import annotations

# Importing a model's file registers it.
from calibration.models import backbones, mlp, resnet, small_cnn, wide_resnet
from calibration.models.backbones import Backbone, Encoder, backbone_of, encoder_of
from calibration.models.category_embedding import build_embedded
from calibration.models.functional import FunctionalModel
from calibration.models.model import (
    MODELS,
    ModelOptions,
    build_model,
    model_version,
    own_preparation,
)
from calibration.models.output import Network, Output, WithFeatures

__all__ = [
    "MODELS",
    "Backbone",
    "Encoder",
    "FunctionalModel",
    "ModelOptions",
    "Network",
    "Output",
    "WithFeatures",
    "backbone_of",
    "backbones",
    "build_embedded",
    "build_model",
    "encoder_of",
    "mlp",
    "model_version",
    "own_preparation",
    "resnet",
    "small_cnn",
    "wide_resnet",
]
