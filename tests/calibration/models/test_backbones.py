"""Pretrained networks: embeddings are the library's own, and bad weights are told apart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from torchvision import models
from torchvision.transforms.v2 import functional as oracle

from calibration.data.text_inputs import MOST_BYTES, decode_texts, encode_texts
from calibration.models import Encoder, build_model, encoder_of
from calibration.models.backbones import backbone_of
from calibration.registry import UnknownNameError
from tests.pretrained import TIMM, TORCHVISION, text_encoder, timm_weights

SIZE = 32


def images(count: int, channels: int = 3, seed: int = 0) -> Tensor:
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, 8, 12), generator=drawn, dtype=torch.uint8)


def prepared(batch: Tensor, mean: Any, deviation: Any, size: int = SIZE) -> Tensor:
    """Resized and normalised by torchvision."""
    floats = oracle.to_dtype(batch.expand(-1, 3, -1, -1), torch.float32, scale=True)
    resized = oracle.resize(floats, [size, size], antialias=True)
    return oracle.normalize(resized, list(mean), list(deviation))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "weights.pt"
    timm_weights(path)
    return path


def timm_encoder(weights: Path, **options: Any) -> Encoder:
    return encoder_of(f"timm:{TIMM}", {"weights": str(weights), "size": SIZE, **options})


@pytest.mark.parametrize("channels", [1, 3])
def test_timm_embeddings_are_what_timm_pools(weights: Path, channels: int) -> None:
    network = timm_weights(weights)
    batch = images(5, channels)
    mean, deviation = network.pretrained_cfg["mean"], network.pretrained_cfg["std"]
    with torch.no_grad():
        features = network.forward_features(prepared(batch, mean, deviation))
        expected = network.forward_head(features, pre_logits=True)
    found = timm_encoder(weights).embed(batch, batch_size=2)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    # Bytes and their shares of 255 are the same images.
    again = timm_encoder(weights).embed(batch.float() / 255, batch_size=2)
    torch.testing.assert_close(again, found, rtol=1e-4, atol=1e-5)


def test_torchvision_embeddings_are_the_inputs_of_its_classifier(tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = models.get_model(TORCHVISION).eval()
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    seen: list[Tensor] = []
    network.fc.register_forward_hook(lambda module, given, made: seen.append(given[0]))
    about = models.get_model_weights(TORCHVISION).DEFAULT.transforms()
    batch = images(3)
    with torch.no_grad():
        network(prepared(batch, about.mean, about.std, 64))
    options = {"weights": str(tmp_path), "size": 64}  # the directory will do
    found = encoder_of(f"torchvision:{TORCHVISION}", options).embed(batch, batch_size=3)
    torch.testing.assert_close(found, seen[0], rtol=1e-4, atol=1e-5)


def test_text_embeddings_are_means_over_a_texts_own_tokens(tmp_path: Path) -> None:
    network, tokenizer = text_encoder(tmp_path)
    texts = ["good film", "it was not very bad food and the film was bad", "", "unheard of"]
    found = encoder_of("hf:tiny", {"weights": str(tmp_path)}).embed(
        encode_texts(pd.Series(texts)), batch_size=3
    )
    for text, row in zip(texts, found, strict=True):
        tokens = tokenizer(text, return_tensors="pt")  # alone: nothing is padded
        with torch.no_grad():
            expected = network(**tokens).last_hidden_state[0].mean(0)
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)))
def test_texts_survive_as_bytes(texts: list[str]) -> None:
    assert decode_texts(encode_texts(pd.Series(texts, dtype=object))) == texts


def test_missing_texts_are_empty_and_endless_ones_cut_at_a_letter() -> None:
    found = decode_texts(encode_texts(pd.Series([None, "a" + "ü" * MOST_BYTES])))
    assert found == ["", "a" + "ü" * ((MOST_BYTES - 1) // 2)]


def test_equal_weights_have_equal_digests_whatever_file_they_come_from(
    weights: Path, tmp_path: Path
) -> None:
    state = torch.load(weights, weights_only=True)
    save_file(state, tmp_path / "same.safetensors")
    torch.save({"state_dict": state}, tmp_path / "wrapped.pt")
    changed = state | {"conv1.0.weight": state["conv1.0.weight"] * 1.001}
    torch.save(changed, tmp_path / "changed.pt")
    without = {k: v for k, v in state.items() if not k.startswith("fc.")}
    torch.save(without, tmp_path / "headless.pt")
    digest = timm_encoder(weights).digest
    for same in ("same.safetensors", "wrapped.pt", "headless.pt"):
        assert timm_encoder(tmp_path / same).digest == digest
    assert timm_encoder(tmp_path / "changed.pt").digest != digest
    assert timm_encoder(weights, size=48).digest != digest


def test_saved_encoders_are_the_same(weights: Path, tmp_path: Path) -> None:
    first = timm_encoder(weights)
    first.save(tmp_path)
    assert timm_encoder(tmp_path).digest == first.digest
    words = tmp_path / "words"
    text_encoder(words)
    second = encoder_of("hf:tiny", {"weights": str(words)})
    second.embed(encode_texts(pd.Series(["good film", "bad"])), batch_size=2)
    (tmp_path / "again").mkdir()
    second.save(tmp_path / "again")
    assert encoder_of("hf:tiny", {"weights": str(tmp_path / "again")}).digest == second.digest


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def bad_weights(kind: str, weights: Path, place: Path) -> Path:
    state = torch.load(weights, weights_only=True)
    path = place / ("bad.safetensors" if kind == "truncated" else "bad.pt")
    match kind:
        case "absent":
            return place / "nowhere.pt"
        case "empty directory":
            return place
        case "malicious":
            torch.save({"state": Evil(place / "owned")}, path)
        case "no state dict":
            torch.save([torch.zeros(2)], path)
        case "text":
            path.write_text("weights")
        case "truncated":
            save_file(state, path)
            path.write_bytes(path.read_bytes()[:1000])
        case "shape":
            torch.save(state | {"conv1.0.weight": torch.zeros(3, 3)}, path)
        case "missing":
            torch.save({k: v for k, v in state.items() if "layer1" not in k}, path)
        case "strange":
            torch.save(state | {"another.weight": torch.zeros(1)}, path)
        case "infinite":
            torch.save(state | {"conv1.0.weight": state["conv1.0.weight"] / 0}, path)
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    {
        "absent": "nowhere.pt: there is no such file of weights",
        "empty directory": "the directory has none of model.safetensors",
        "malicious": "it could run code",
        "no state dict": "not a state dict",
        "text": "not a file of torch's",
        "truncated": "not a safetensors file, or a damaged one",
        "shape": r"conv1.0.weight has shape \(3, 3\), and in timm:test_resnet",
        "missing": "lacks layer1.0.conv1.weight, .* more of timm:.*another network",
        "strange": "holds another.weight, which timm:.* does not have",
        "infinite": "the embedding of row 0 is not finite",
    }.items(),
)
def test_bad_weights_are_told_apart(kind: str, message: str, weights: Path, tmp_path: Path) -> None:
    path = bad_weights(kind, weights, tmp_path)
    with pytest.raises(ValueError, match=message):
        timm_encoder(path).embed(images(1), batch_size=1)
    assert not (tmp_path / "owned").exists()


def test_texts_need_a_whole_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such directory; for hf:tiny it holds config"):
        encoder_of("hf:tiny", {"weights": str(tmp_path / "nowhere")})
    with pytest.raises(ValueError, match=r"hf:tiny cannot be loaded from .*save_pretrained"):
        encoder_of("hf:tiny", {"weights": str(tmp_path)})
    text_encoder(tmp_path)
    kept = load_file(tmp_path / "model.safetensors")
    lost = {k: v for k, v in kept.items() if "word_embeddings" not in k}
    save_file(lost, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights of hf:tiny.*word_embeddings"):
        encoder_of("hf:tiny", {"weights": str(tmp_path), "max_tokens": 9})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.full((1, 3, 8, 8), 7.0), "from 0 to 1; found 7 … 7"),
        (torch.zeros(1, 2, 8, 8), r"1 or 3 channels; found inputs of shape \(2, 8, 8\)"),
        (torch.zeros(1, 5), r"found inputs of shape \(5,\)"),
    ],
)
def test_what_is_no_image_is_refused(weights: Path, inputs: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        timm_encoder(weights).embed(inputs, batch_size=1)


@pytest.mark.parametrize("name", ["timm:test_resnat", "torchvision:shuflenet_v2_x0_5"])
def test_unknown_networks_are_refused_with_the_nearest(name: str, weights: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean '(test_resnet|shufflenet_v2_x0_5)'"):
        encoder_of(name, {"weights": str(weights)})


def test_default_weights_without_a_network_say_how_to_get_them() -> None:
    import timm

    name, given = f"timm:{TIMM}", {"weights": "default"}
    with (
        patch.object(timm, "create_model", side_effect=OSError("no route to host")),
        pytest.raises(
            ValueError, match=r"no route to host; on a machine with a network, run torch"
        ),
    ):
        encoder_of(name, given)
    with (
        patch.object(models, "get_model", side_effect=OSError("no route to host")),
        pytest.raises(ValueError, match=r"fetch https://\S+ on a machine with a network"),
    ):
        encoder_of(f"torchvision:{TORCHVISION}", given)


def test_a_missing_package_is_named_with_its_command(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibration.models.backbones.backbone.find_spec", lambda name: None)
    for family, package in {
        "timm": "timm",
        "torchvision": "torchvision",
        "hf": "transformers",
    }.items():
        with pytest.raises(ValueError, match=rf"{package}.*pip install 'calsweep\[{family}\]'"):
            encoder_of(f"{family}:x", {"weights": str(weights)})


def test_a_head_is_one_layer_or_an_mlp() -> None:
    options = {"weights": "w.pt"}
    linear = build_model("timm:any", options, (96,), 10)
    assert sum(p.numel() for p in linear.parameters()) == 96 * 10 + 10
    mlp = build_model("timm:any", options | {"head": "mlp", "widths": [20]}, (96,), 10)
    assert sum(p.numel() for p in mlp.parameters()) == 96 * 20 + 20 + 20 * 10 + 10


def test_other_names_with_colons_stay_import_paths() -> None:
    assert backbone_of("tests.pretrained:timm_weights", {}) is None
    with pytest.raises(UnknownNameError, match="cannot import model 'nothing:here'"):
        build_model("nothing:here", {}, (2,), 2)
