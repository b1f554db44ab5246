"""The options of a pretrained network in a spec, and the network itself."""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from calibration.data.dataset import Kind, Transform
from calibration.models.backbones.encoder import Encoder
from calibration.models.fine_tuned import FineTuned
from calibration.models.mlp import MLP
from calibration.models.model import MODELS, ModelOptions
from calibration.models.output import Network
from calibration.seeds import seeded


class Backbone(ModelOptions):
    """Base of the families of pretrained networks, registered as ``family:``.

    A frozen one embeds every row once; a trial trains only the head, whose inputs are
    standardised embeddings. Otherwise it is trained together with its head, starting from the
    given weights, and sees its inputs in every epoch.
    """

    takes: ClassVar[Kind]
    package: ClassVar[str]
    """The package to install, with the extra named like the family."""
    imports: ClassVar[tuple[str, ...]]
    """The packages that embedding imports."""
    tunable: ClassVar[bool] = False
    """Whether its networks can be trained, not only their heads."""

    weights: Annotated[
        Path | Literal["default"],
        Field(description="a file or directory; default: the library's own, from the network"),
    ]
    frozen: Annotated[
        bool, Field(description="whether only the head is trained; false: the whole network")
    ] = True
    head: Annotated[
        Literal["linear", "mlp"], Field(description="what is trained on the embeddings")
    ] = "linear"
    widths: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...],
        Field(min_length=1, description="units of each hidden layer of an mlp head"),
    ] = (256,)
    batch_size: Annotated[
        int, Field(ge=1, le=65_536, description="inputs that are embedded or predicted at once")
    ] = 64

    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """The head, for embeddings of ``input_shape``."""
        widths = () if self.head == "linear" else self.widths
        return MLP(widths=widths).build(input_shape, classes)

    def build_as(self, name: str, input_shape: tuple[int, ...], classes: int) -> Network:
        """The head; or, if it is not frozen, the network called ``name`` under a new head."""
        if self.frozen:
            return self.build(input_shape, classes)
        found = self._thawed(name)
        with torch.no_grad():
            vectors = found.vectors(found.blank(input_shape))
        if not bool(vectors.isfinite().all()):
            raise ValueError(f"{name}: its output is not finite; are the weights damaged?")
        head = self.build(found.vector_shape(vectors), classes)
        return FineTuned(found.trainable(), head, self.batch_size)

    def prepare_as(self, name: str) -> Transform | None:
        """The transform before a trained network; embeddings are transformed like any data."""
        return None if self.frozen else self._thawed(name).prepared

    def _thawed(self, name: str) -> Encoder:
        if not self.tunable:
            family = name.partition(":")[0]
            raise ValueError(
                f"frozen: false is not possible with {family}: networks, of which only heads can "
                "be trained; leave it out"
            )
        return _encoder(name, self)

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
    found = backbone_of(name, options)
    if found is None:
        raise ValueError(f"model {name!r} is not a pretrained network")
    return _encoder(name, found)


@lru_cache(maxsize=2)
def _encoder(name: str, found: Backbone) -> Encoder:
    found.check_installed()
    family, _, member = name.partition(":")
    if not member:
        raise ValueError(f"model {name!r}: write {family}:NAME")
    # Created once, it must not advance the random stream that a head is drawn from; and a caller
    # may be building on the meta device.
    with seeded(0, "encoder"), torch.device("cpu"):
        return found.encoder(member)
