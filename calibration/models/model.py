"""The interface of models, their registry, and building one by name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from calibration.data.dataset import Transform
from calibration.hyperparameters import Settings
from calibration.models.output import Network, WithFeatures
from calibration.registry import Registry


class ModelOptions(Settings, ABC):
    """Base of every registered model: the fields are its options, ``build`` makes the network.

    The first line of a subclass's docstring is the description shown to users. ``version``
    is part of every trial's key: increase it when a change alters what is built.
    """

    noun: ClassVar[str] = "option"
    version: ClassVar[int] = 1

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """A freshly initialised network for samples of ``input_shape``.

        Draws from torch's global random generator. Raises ``ValueError`` if the model cannot
        take such inputs.
        """

    def build_as(self, name: str, input_shape: tuple[int, ...], classes: int) -> Network:
        """``build`` for the member called ``name``, if a family of networks is registered."""
        return self.build(input_shape, classes)

    def prepare_as(self, name: str) -> Transform | None:
        """The transform from raw inputs to those of the network called ``name``.

        None for most models: their inputs have a transform fitted on the training rows.
        """
        return None


MODELS: Registry[type[ModelOptions]] = Registry("model", "calsweep.models")


def build_model(
    name: str, options: dict[str, Any], input_shape: Sequence[int], classes: int
) -> Network:
    """Build a registered model, or the user's own from ``package.module:factory``.

    A factory is called as ``factory(input_shape=..., classes=..., **options)`` and returns an
    ``nn.Module`` whose forward gives logits (N, classes), or the pair (logits, features).
    It is tried once on a batch of two, so that a mismatch shows here and not during training.

    Raises ``ValueError`` for an unknown name, unknown or wrong options, fewer than two classes,
    or an input shape that the model cannot take.
    """
    shape = tuple(input_shape)
    if not shape or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
        raise ValueError(
            f"input_shape must be the positive sizes of one sample, e.g. (2,) or (3, 32, 32); "
            f"got {shape}"
        )
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
        raise ValueError(f"classes must be a whole number of at least 2; got {classes!r}")
    entry: Any = MODELS[name]
    if inspect.isclass(entry) and issubclass(entry, ModelOptions):
        return entry.checked(options, f"model {name!r}").build_as(name, shape, classes)
    return _from_factory(name, entry, options, shape, classes)


def own_preparation(name: str, options: dict[str, Any]) -> Transform | None:
    """The transform from raw inputs to a model's, if it does not leave that to the data.

    Raises ``ValueError`` as ``build_model`` does.
    """
    entry: Any = MODELS[name]
    if not (inspect.isclass(entry) and issubclass(entry, ModelOptions)):
        return None
    return entry.checked(options, f"model {name!r}").prepare_as(name)


def model_version(name: str) -> int:
    """The version of a registered model, or of a user's own with a numeric ``version``."""
    version = getattr(MODELS[name], "version", 1)
    return version if isinstance(version, int) else 1


def image_shape(input_shape: tuple[int, ...], model: str, smallest: int) -> tuple[int, int, int]:
    """``input_shape`` as (channels, height, width).

    Raises ``ValueError`` if it is not an image, or has a side shorter than ``smallest``.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise ValueError(
            f"{model} takes images of shape (channels, height, width) with sides of at least "
            f"{smallest}; got input_shape {input_shape}"
        )
    channels, height, width = input_shape
    return channels, height, width


def _from_factory(
    name: str,
    factory: Callable[..., Any],
    options: dict[str, Any],
    input_shape: tuple[int, ...],
    classes: int,
) -> Network:
    if not callable(factory):
        raise ValueError(f"model {name!r} is {factory!r}; it must be a callable that builds one")
    arguments = {"input_shape": input_shape, "classes": classes, **options}
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"model {name!r} cannot be called as factory({', '.join(f'{a}=…' for a in arguments)}):"
            f" {error}"
        ) from error
    module = factory(**arguments)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"model {name!r} must return a torch.nn.Module; got {type(module).__name__}"
        )
    network = module if isinstance(module, Network) else WithFeatures(module)
    _try_out(name, network, input_shape, classes)
    return network


def _try_out(name: str, network: Network, input_shape: tuple[int, ...], classes: int) -> None:
    mode = network.training
    network.eval()
    try:
        with torch.no_grad():
            logits = network(torch.zeros(2, *input_shape)).logits
    # A user's forward may raise anything; it all means the same to the author of the spec.
    except Exception as error:
        raise ValueError(
            f"model {name!r} failed on a batch of shape {(2, *input_shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    finally:
        network.train(mode)
    if tuple(logits.shape) != (2, classes):
        raise ValueError(
            f"model {name!r} gave logits of shape {tuple(logits.shape)} for two samples of shape "
            f"{input_shape}; expected {(2, classes)}"
        )
