"""What Ray finds in the environment when a sweep starts it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.ray_backend import tune_run
from sweeps.ray_backend.connection import Cluster


def test_ray_reports_no_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def connected(*given: object) -> None:
        found.append(os.environ["RAY_USAGE_STATS_ENABLED"])
        raise ConnectionError

    unused: dict[str, Any] = dict.fromkeys(("store", "on_event", "still_ours", "tell"))
    plan: Any = SimpleNamespace(finished=False, loaded=None)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    monkeypatch.setattr(tune_run, "connected", connected)
    with pytest.raises(ConnectionError):
        tune_run.train(plan, cluster=Cluster(None), workspace=tmp_path, **unused)
    assert found == ["0"]
