"""Pretrained networks under trained heads: ``timm:NAME``, ``torchvision:NAME``, ``hf:NAME``."""

from __future__ import annotations

# Importing a family's file registers it.
from calibration.models.backbones import huggingface, timm_models, torchvision_models
from calibration.models.backbones.backbone import Backbone, backbone_of, encoder_of
from calibration.models.backbones.encoder import EMBEDDING_VERSION, Encoder

__all__ = [
    "EMBEDDING_VERSION",
    "Backbone",
    "Encoder",
    "backbone_of",
    "encoder_of",
    "huggingface",
    "timm_models",
    "torchvision_models",
]
