"""What assembles a sweep, where no real sweep is needed to see it."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import torch

from sweeps import runner


def test_syncing_computes_with_one_thread_as_running_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over several threads round differently: its report would not be that of the run."""
    found = []

    def look(*given: Any) -> NoReturn:
        found.append(torch.get_num_threads())
        raise LookupError

    monkeypatch.setattr(runner, "Sweep", look)
    nothing: Any = None
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(LookupError):
            runner.sync_sweep(nothing, nothing)
    finally:
        torch.set_num_threads(before)
    assert found == [1]
