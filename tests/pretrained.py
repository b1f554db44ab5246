"""Small backbones with weights in files, for tests: random ones, since none can be downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import timm
import torch
from sklearn.datasets import load_digits

TIMM, TORCHVISION = "test_resnet.r160_in1k", "shufflenet_v2_x0_5"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [*SPECIAL, "good", "bad", "film", "food", "very", "not", "it", "was", "and", "the"]

HEADS = f"""\
name: heads
datasets: [digits]
model: {{name: "timm:{TIMM}", weights: weights.pt, size: 16}}
methods:
  standard: {{lr: {{loguniform: [0.003, 0.03]}}, weight_decay: 0}}
  focal: {{lr: 0.01, weight_decay: 0, gamma: 2}}
training: {{epochs: 3, batch_size: 128}}
search: {{sampler: random, trials: 3}}
confirm_seeds: 2
calibrators: [temperature]
"""

TUNED = f"""\
name: tuned
datasets: [{{name: arrays, path: few.npz}}]
model: {{name: "timm:{TIMM}", weights: weights.pt, size: 16, frozen: false}}
methods:
  standard: {{lr: 0.01, weight_decay: 0, backbone_lr: {{loguniform: [0.1, 1]}}, freeze_epochs: 1}}
training: {{epochs: 3, batch_size: 64, augmentation: [crop]}}
search: {{sampler: random, trials: 2}}
confirm_seeds: 1
calibrators: [temperature]
"""
"""The whole network, on what ``few_digits`` writes."""


def few_digits(path: Path) -> None:
    """Images of four digits."""
    digits = load_digits(n_class=4)
    images = (digits.images * 15).astype(np.uint8)
    np.savez(path, inputs=images[:240], labels=digits.target[:240])


def timm_weights(path: Path, seed: int = 0) -> Any:
    """A file of a whole network's weights, its classifier included, and the network."""
    torch.manual_seed(seed)
    network = timm.create_model(TIMM, pretrained=False)
    torch.save(network.state_dict(), path)
    return network.eval()


def text_encoder(directory: Path) -> Any:
    """A directory as ``save_pretrained`` makes it, of a tiny BERT; and what is in it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    rules = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    rules.pre_tokenizer = pre_tokenizers.Whitespace()
    rules.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, model_max_length=16, **names)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    network = BertModel(config).eval()
    network.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return network, tokenizer


def reviews(count: int) -> pd.DataFrame:
    """Texts of which one word decides the label."""
    draws = np.random.default_rng(0)
    words = np.array(WORDS[6:])
    label = draws.choice(["good", "bad"], count)
    texts = [" ".join([*draws.choice(words, draws.integers(1, 6)), word]) for word in label]
    return pd.DataFrame({"review": texts, "stars": draws.integers(1, 6, count), "label": label})
