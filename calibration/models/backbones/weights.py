"""Weights from a local file: only tensors by name, nothing that could run code."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FILES = ("model.safetensors", "pytorch_model.bin", "weights.pt")
"""File names of weights in a directory: those of the Hugging Face hub, and of an export."""
_WRAPPERS = ("state_dict", "model", "model_state_dict")


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file or of a state dict that ``torch.save`` wrote.

    In a directory, the first of ``FILES`` is read. Raises ``ValueError`` naming the file if it
    is absent, damaged, or holds anything but tensors.
    """
    if path.is_dir():
        there = [path / name for name in FILES if (path / name).is_file()]
        if not there:
            raise ValueError(f"{path}: the directory has none of {', '.join(FILES)}")
        path = there[0]
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file of weights")
    content = _safetensors(path) if path.suffix == ".safetensors" else _state_dict(path)
    for name in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    if (
        not isinstance(content, Mapping)
        or not content
        or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items())
    ):
        raise ValueError(
            f"{path}: not a state dict, which is a mapping of names to tensors; save one with "
            "torch.save(network.state_dict(), path)"
        )
    return dict(content)


def _safetensors(path: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path}: not a safetensors file, or a damaged one: {error}") from error


def _state_dict(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path}: holds more than tensors, or is not a file of torch's, and is not loaded "
            "because it could run code; save the tensors alone with torch.save("
            "network.state_dict(), path), or as safetensors"
        ) from error
    except Exception as error:  # torch documents no exception for damaged bytes
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: cannot be read as a file of torch's: {reason}") from error


def load_weights(
    network: nn.Module, weights: Mapping[str, Tensor], path: Path, name: str, head: Iterable[str]
) -> None:
    """Load ``weights`` into a network, except those of its old ``head`` (prefixes).

    Raises ``ValueError`` if some are missing, superfluous or of another shape.
    """
    prefixes = tuple(f"{prefix}." for prefix in head)
    given = {key: value for key, value in weights.items() if not key.startswith(prefixes)}
    wanted = network.state_dict()
    missing = [
        key for key in wanted if key not in given and not key.endswith("num_batches_tracked")
    ]
    if missing:
        raise ValueError(
            f"{path}: lacks {_some(missing)} of {name}; are these the weights of another network?"
        )
    strange = [key for key in given if key not in wanted]
    if strange:
        raise ValueError(
            f"{path}: holds {_some(strange)}, which {name} does not have; are these the weights of "
            "another network?"
        )
    for key, value in given.items():
        if value.shape != wanted[key].shape:
            raise ValueError(
                f"{path}: {key} has shape {tuple(value.shape)}, and in {name} "
                f"{tuple(wanted[key].shape)}; are these the weights of another network?"
            )
    network.load_state_dict(given, strict=False)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
