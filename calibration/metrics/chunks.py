"""Row blocks: float64 work on N × K arrays without a float64 copy of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

# torch runs operations on up to this many elements in the calling thread: blocks stay in the
# cache, and threads do not wait for each other hundreds of times (ruinous on shared cores).
ELEMENTS = 2**15


def row_chunks(rows: int, width: int, elements: int | None = None) -> Iterator[slice]:
    """Yield slices that cover ``rows`` rows of ``width`` elements, about ``elements`` at a time.

    By default ELEMENTS.
    """
    step = max(1, (elements or ELEMENTS) // width)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def map_rows(loss: Callable[[Tensor, Tensor], Tensor], rows: Tensor, labels: Tensor) -> Tensor:
    """Apply ``loss``, from float64 rows (n, K) and labels (n) to values (n), block by block.

    Takes rows (..., N, K) of any floating type and labels (..., N); returns float64 (..., N).
    ``loss`` may overwrite the rows it is given.
    """
    width = rows.shape[-1]
    flat, targets = rows.reshape(-1, width), labels.reshape(-1)
    values = torch.empty(len(flat), dtype=torch.float64, device=rows.device)
    for chunk in row_chunks(len(flat), width):
        block = flat[chunk].to(torch.float64, copy=True)
        values[chunk] = loss(block, targets[chunk])
    return values.view(labels.shape)
