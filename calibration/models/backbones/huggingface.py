"""Text encoders of Hugging Face's transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from calibration.data.dataset import Kind
from calibration.data.text_inputs import decode_texts
from calibration.models.backbones.backbone import Backbone
from calibration.models.backbones.encoder import Encoder
from calibration.models.backbones.torchvision_models import complete_torchvision
from calibration.models.model import MODELS

_MOST_TOKENS = 512
_MASK = "attention_mask"


@MODELS.register("hf:")
class HuggingFaceBackbone(Backbone):
    """Pretrained text encoder of transformers under a trained head: ``hf:bert-base-uncased``."""

    takes: ClassVar[Kind] = "text"
    package: ClassVar[str] = "transformers"
    imports: ClassVar[tuple[str, ...]] = ("transformers", "tokenizers", "safetensors")
    tunable: ClassVar[bool] = True

    max_tokens: Annotated[
        int | None,
        Field(ge=1, le=100_000, description="of a text; by default what it takes, at most 512"),
    ] = None

    def encoder(self, name: str) -> Encoder:
        """The encoder with its tokenizer, from a directory or by its name on the hub."""
        complete_torchvision()
        if not isinstance(self.weights, Path):
            return self._loaded(name, name)
        if not self.weights.is_dir():
            raise ValueError(
                f"{self.weights}: there is no such directory; for hf:{name} it holds config.json, "
                "model.safetensors and the tokenizer's files, as save_pretrained writes them"
            )
        return self._loaded(name, str(self.weights))

    def _loaded(self, name: str, source: str) -> Encoder:
        from transformers import AutoModel, AutoTokenizer

        local = isinstance(self.weights, Path)
        try:
            network, report = AutoModel.from_pretrained(
                source, local_files_only=local, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local)
        except Exception as error:  # the library raises many types for missing files
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            remedy = (
                "the directory holds config.json, model.safetensors and the tokenizer's files, as "
                "save_pretrained writes them"
                if local
                else f"on a machine with a network, run AutoModel.from_pretrained({name!r})."
                f"save_pretrained('encoder') and the same with AutoTokenizer, and write weights: "
                "encoder"
            )
            raise ValueError(f"hf:{name} cannot be loaded from {source}: {reason}; {remedy}") from (
                error
            )
        lacking = sorted(
            key
            for kind in ("missing_keys", "mismatched_keys")
            for key in map(str, report.get(kind, ()))
            if not key.startswith(TextEncoder.unused)
        )
        if lacking:
            raise ValueError(
                f"{source}: lacks weights of hf:{name}, or has them in another shape: "
                f"{', '.join(lacking[:3])}; are these the weights of another network?"
            )
        if getattr(network.config, "is_encoder_decoder", False):
            raise ValueError(f"hf:{name} generates texts from texts; choose an encoder")
        limits = (
            self.max_tokens,
            tokenizer.model_max_length,
            getattr(network.config, "max_position_embeddings", None),
            None if self.max_tokens else _MOST_TOKENS,
        )
        most = min(limit for limit in limits if limit is not None)
        return TextEncoder(f"hf:{name}", network, tokenizer, most)


class MeanOverTokens(nn.Module):
    """An encoder's last hidden states, averaged over the tokens of each text.

    Its inputs (N, fields, tokens) hold the tokenizer's output under each of the names ``fields``;
    tokens excluded by its attention mask do not count.
    """

    def __init__(self, network: nn.Module, fields: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.fields = fields

    def forward(self, inputs: Tensor) -> Tensor:
        """One vector per text."""
        given = dict(zip(self.fields, inputs.unbind(1), strict=True))
        states: Tensor = self.network(**given).last_hidden_state
        kept = given[_MASK][..., None].to(states.dtype)
        means: Tensor = (states * kept).sum(1) / kept.sum(1).clamp(min=1)
        return means


class TextEncoder(Encoder):
    """Embeds texts as the mean of the last layer's vectors over a text's tokens."""

    unused = ("pooler.",)
    inside = "network."

    def __init__(self, name: str, network: Any, tokenizer: Any, most: int) -> None:
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        about = {"max_tokens": most, "tokenizer": _rules(tokenizer), "pool": "mean"}
        super().__init__(name, network, about)
        self.tokenizer, self.most = tokenizer, most
        self.fields = tuple(tokenizer("a"))

    def prepared(self, inputs: Tensor) -> Tensor:
        """The texts' tokens (N, fields, longest). Raises ``ValueError`` for non-texts."""
        if inputs.dtype != torch.uint8 or inputs.ndim != 2:
            raise ValueError(
                f"{self.name} takes texts; found inputs of shape {tuple(inputs.shape[1:])}"
            )
        tokens = self.tokenizer(
            decode_texts(inputs.cpu()),
            padding=True,
            truncation=True,
            max_length=self.most,
            return_tensors="pt",
        )
        return torch.stack([tokens[field] for field in self.fields], 1).to(inputs.device)

    def vectors(self, prepared: Tensor) -> Tensor:
        """The mean over tokens."""
        found: Tensor = MeanOverTokens(self.network, self.fields)(prepared)
        return found

    def blank(self, shape: tuple[int, ...]) -> Tensor:
        """A text of padding, all of which counts: a mean over no tokens is undefined."""
        tokens = torch.zeros(1, *shape, dtype=torch.int64, device="cpu")
        tokens[:, self.fields.index(_MASK)] = 1
        return tokens

    def trainable(self) -> nn.Module:
        """A copy of the network with the mean over tokens."""
        return MeanOverTokens(super().trainable(), self.fields)

    def save(self, directory: Path) -> None:
        """Write network and tokenizer as ``save_pretrained`` does."""
        network: Any = self.network
        network.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)


def _rules(tokenizer: Any) -> dict[str, Any]:
    """Everything that determines how a tokenizer reads a text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # a tokenizer written in Python
        return {"class": type(tokenizer).__name__, "vocabulary": tokenizer.get_vocab()}
    rules: dict[str, Any] = json.loads(backend.to_str())
    # Those of the last call; every call sets them again.
    return {name: rule for name, rule in rules.items() if name not in ("padding", "truncation")}
