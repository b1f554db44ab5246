"""The rows of trials: divided and prepared once in a process where they are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from calibration.data import load_dataset
from calibration.training import TrainingRun
from sweeps.engine import networks
from sweeps.engine.identity import TrialConfig
from sweeps.engine.plan import Plan
from sweeps.spec import load_spec
from sweeps.store import Store

SPEC = """\
name: rows
datasets: [iris]
model: {name: mlp, widths: [4]}
methods:
  standard: {lr: {loguniform: [0.001, 0.1]}}
  fl_gamma: {lr: 0.01}
search: {sampler: random, trials: 2}
training: {epochs: 1}
calibrators: []
"""


@pytest.fixture(autouse=True)
def nothing_divided() -> Iterator[None]:
    networks._SPLITS.clear()
    yield
    networks._SPLITS.clear()


@pytest.fixture
def search(tmp_path: Path) -> list[TrialConfig]:
    """Two trials of one search, and one of a row that needs held-out rows."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    plan = Plan(load_spec(tmp_path / "spec.yaml"), Store(tmp_path / "runs"))
    plan.replay()
    trials = [trial for _ in range(4) if (trial := plan.next()) is not None]
    wanted = ("standard", "standard", "fl_gamma")
    configs = sorted((trial.config for trial in trials), key=lambda config: config.method)
    assert [config.method for config in configs[:0:-1]] == list(wanted)
    return configs[:0:-1]


def rows(run: object) -> torch.Tensor:
    assert isinstance(run, TrainingRun)
    return run.train.inputs


def test_trials_of_one_search_hold_the_same_tensors(search: list[TrialConfig]) -> None:
    first, second = (networks.fresh_run(config) for config in search[:2])
    assert search[0].hyperparameters != search[1].hyperparameters
    assert rows(first) is rows(second)


def test_other_seeds_and_methods_with_held_out_rows_have_their_own(
    search: list[TrialConfig],
) -> None:
    config, held_out = search[0], search[2]
    reseeded = config.model_copy(update={"seed": config.seed + 1})
    known = networks.splits_of(config)
    for other in (reseeded, held_out):
        found = networks.splits_of(other)
        assert found is not known
        assert not torch.equal(found.train.inputs[:50], known.train.inputs[:50])
    assert networks.splits_of(held_out).meta_validation is not None


def test_a_dataset_that_arrives_anew_is_divided_anew(search: list[TrialConfig]) -> None:
    known = networks.splits_of(search[0])
    networks.provide(load_dataset("iris", {}))
    assert networks.splits_of(search[0]) is not known


def test_large_rows_and_old_ones_are_not_kept(
    search: list[TrialConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(networks.KEPT_SPLITS + 2):
        networks.splits_of(search[0].model_copy(update={"seed": seed}))
    assert len(networks._SPLITS) == networks.KEPT_SPLITS
    networks._SPLITS.clear()
    monkeypatch.setattr(networks, "KEPT_BYTES", 100)
    networks.splits_of(search[0])
    assert not networks._SPLITS
