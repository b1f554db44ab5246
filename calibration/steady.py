"""Which kernels round a member of a cohort as if it were alone, and a loss that does.

Measured on CPUs: reductions along rows, matrix products by BLAS, exponentials and logarithms
give every member the same bits as alone, in any company. Two kinds of kernels do not, and
`Unsteady` detects them by the shapes they are called with:

- products of fewer than 400 multiplications, which torch computes in its own loop if they are
  batched and by BLAS if they are not;
- functions with one formula for full vector registers and another for the remaining values,
  unless a member's values fill registers exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

SMALL_PRODUCT = 400
REGISTERS = 32
"""The most values that a vectorised loop takes at once: two AVX-512 registers."""
FEW_CLASSES = 32
TWO_FORMULAS = {
    "elu",
    "elu_backward",
    "erf",
    "gelu",
    "gelu_backward",
    "log_sigmoid_forward",
    "mish",
    "pow",
    "sigmoid",
    "sigmoid_backward",
    "silu",
    "silu_backward",
    "softplus",
    "softplus_backward",
}


class Unsteady(TorchDispatchMode):
    """Collects the names of kernels that may round differently in a company of ``members``."""

    def __init__(self, members: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.members = members
        self.found: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to skip it, torch would import its compiler, which takes seconds in every worker."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("bmm", "baddbmm"):
            if result[0].numel() * args[-2].shape[-1] < SMALL_PRODUCT:
                self.found.add("small matrix products")
        elif name in TWO_FORMULAS and self._left_over(args, result):
            self.found.add(name)
        return result

    def _left_over(self, args: Any, result: Any) -> bool:
        """Whether a member's values do not fill registers exactly."""
        if not isinstance(result, Tensor):
            return True
        if len(args) > 1 and not isinstance(args[1], Tensor) and args[1] in (2, 3):
            return False  # a power computed as a product
        if all(map(self._strided, (v for v in args if isinstance(v, Tensor) and v.dim()))):
            return False  # such as Adam's powers: no value is vectorised, as when alone
        return result.numel() // self.members % REGISTERS != 0

    def _strided(self, values: Tensor) -> bool:
        """Whether no two successive values are adjacent in memory, in any member."""
        return len(values) == self.members and min(values.stride()) > 1


class SteadyLoss(TorchFunctionMode):
    """Makes ``F.cross_entropy`` sum a member's rows in the same order as it does alone."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.cross_entropy and _usual(args, kwargs or {}):
            return _MeanNll.apply(args[0].log_softmax(dim=1), args[1])  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


def _usual(args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether these arguments ask for the plain mean over rows of logits and labels."""
    defaults = {"weight": None, "reduction": "mean", "label_smoothing": 0.0, "ignore_index": -100}
    plain = len(args) == 2 and args[0].dim() == 2 and args[1].dim() == 1
    return plain and all(value == defaults.get(name) for name, value in options.items())


class _MeanNll(torch.autograd.Function):
    """``F.nll_loss`` that loops over members under vmap: the order of summation matters."""

    @staticmethod
    def forward(log_p: Tensor, labels: Tensor) -> Tensor:
        return F.nll_loss(log_p, labels)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        log_p, labels = inputs
        ctx.save_for_backward(log_p, labels)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple[Tensor, None]:
        log_p, labels = ctx.saved_tensors
        share = -(bars[0] / len(labels))
        at = labels.unsqueeze(-1)
        return torch.zeros_like(log_p).scatter(-1, at, share.expand(at.shape)), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], log_p: Tensor, labels: Tensor
    ) -> tuple[Tensor, int]:
        def members(values: Tensor, dim: int | None) -> Iterable[Tensor]:
            return repeat(values, info.batch_size) if dim is None else values.unbind(dim)

        pairs = zip(members(log_p, in_dims[0]), members(labels, in_dims[1]), strict=True)
        return torch.stack([F.nll_loss(*pair) for pair in pairs]), 0


def cross_entropy_and_slope(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """``F.cross_entropy`` of (N, C), or of each of (K, N, C), and its gradient at the logits.

    −log p_y and (p − one-hot) / N. With few classes, each class's values are laid out contiguously:
    along short rows, torch's kernels process one value at a time.
    """
    few = logits.shape[-1] <= FEW_CLASSES
    values, dim = (logits.mT.contiguous(), -2) if few else (logits, -1)
    log_p, at = values.log_softmax(dim), labels.unsqueeze(dim)
    chosen = log_p.gather(dim, at)
    loss = chosen.squeeze(dim).mean(-1).neg()
    slope = log_p.exp_().scatter_add_(dim, at, torch.full_like(chosen, -1))
    slope.div_(labels.shape[-1])
    return loss, slope.mT if few else slope
