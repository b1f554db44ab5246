"""What a trial leaves when its process is killed while its calibrators are evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.plan import Plan
from sweeps.spec import load_spec
from sweeps.store import Store
from sweeps.trial import TrialRun

SPEC = """\
name: evaluated
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods: {standard: {lr: 0.1, weight_decay: 0}}
training: {epochs: 3, batch_size: full}
confirm_seeds: 1
post_hoc: [temperature]
"""


class Killed(BaseException):
    """What no ``except Exception`` on the way catches."""


class Dying(Store):
    """Dies right after the evaluation of one calibrator has been written."""

    def write_map(self, key: str, tag: str, name: str, evaluation: dict[str, Any]) -> None:
        super().write_map(key, tag, name, evaluation)
        if name == "temperature":
            raise Killed


def test_killed_after_its_last_evaluation_a_trial_lacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    plan = Plan(load_spec(tmp_path / "spec.yaml"), Store(tmp_path / "runs"))
    plan.replay()
    entry = plan.next()
    assert entry is not None
    about = {"maps": plan.spec.maps, "evaluation": plan.spec.evaluation}
    with pytest.raises(Killed):
        TrialRun(entry.config, Dying(tmp_path / "runs"), **about).advance(600)
    store = Store(tmp_path / "runs")
    assert TrialRun(entry.config, store, **about).advance(600)
    assert set(store.maps(entry.key, plan.spec.evaluation.tag)) == {"identity", "temperature"}
    assert store.extra(entry.key, "reliability.png") is not None
