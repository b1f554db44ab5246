"""What a spec says of a pretrained network, and the network behind it."""

from __future__ import annotations

import json
from abc import abstractmethod
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from calibration.data.dataset import Kind
from calibration.models.backbones.encoder import Encoder
from calibration.models.mlp import MLP
from calibration.models.model import MODELS, ModelOptions
from calibration.models.output import Network


class Backbone(ModelOptions):
    """Base of the families of pretrained networks, registered as ``family:``.

    A frozen one embeds every row once; what a trial trains is the head, whose inputs are
    standardised embeddings.
    """

    takes: ClassVar[Kind]
    package: ClassVar[str]
    """What must be installed, with the extra of the family's name."""
    imports: ClassVar[tuple[str, ...]]
    """The packages that embedding imports."""

    weights: Annotated[
        Path | Literal["default"],
        Field(description="a file or directory; default: the library's own, from the network"),
    ]
    frozen: Annotated[bool, Field(description="whether only the head is trained")] = True
    head: Annotated[
        Literal["linear", "mlp"], Field(description="what is trained on the embeddings")
    ] = "linear"
    widths: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...],
        Field(min_length=1, description="units of each hidden layer of an mlp head"),
    ] = (256,)
    batch_size: Annotated[
        int, Field(ge=1, le=65_536, description="inputs that are embedded at once")
    ] = 64

    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """The head, for embeddings of ``input_shape``."""
        widths = () if self.head == "linear" else self.widths
        return MLP(widths=widths).build(input_shape, classes)

    @abstractmethod
    def encoder(self, name: str) -> Encoder:
        """The network called ``name`` in its family, with its weights and preprocessing.

        Raises ``ValueError`` if it does not exist, or the weights are missing or do not fit.
        """

    @classmethod
    def check_installed(cls) -> None:
        """Raise ``ValueError`` with the remedy if the family's package is missing."""
        if find_spec(cls.package) is None:
            extra = next(name for name, kind in MODELS.items() if kind is cls).rstrip(":")
            raise ValueError(
                f"needs the package {cls.package}, which is not installed: "
                f"pip install 'calsweep[{extra}]'"
            )


def backbone_of(name: str, options: dict[str, Any]) -> Backbone | None:
    """The options of the pretrained network that a model's ``name`` stands for; None if none.

    Raises ``SettingError`` for wrong options.
    """
    if ":" not in name or name not in MODELS:
        return None
    kind: Any = MODELS[name]
    if not (isinstance(kind, type) and issubclass(kind, Backbone)):
        return None
    return kind.checked(options, f"model {name!r}")


def encoder_of(name: str, options: dict[str, Any]) -> Encoder:
    """The encoder of a pretrained network, made once in a process.

    Raises ``ValueError`` if the package or the weights are missing, or do not fit.
    """
    return _encoder(name, json.dumps(options, sort_keys=True, default=str))


@lru_cache(maxsize=2)
def _encoder(name: str, options: str) -> Encoder:
    found = backbone_of(name, json.loads(options))
    if found is None:
        raise ValueError(f"model {name!r} is not a pretrained network")
    found.check_installed()
    family, _, member = name.partition(":")
    if not member:
        raise ValueError(f"model {name!r}: write {family}:NAME")
    return found.encoder(member)
