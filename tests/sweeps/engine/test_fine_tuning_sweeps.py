"""Sweeps that fine-tune a backbone: what they record, their keys, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calibration.models.backbones import backbone
from calibration.models.backbones.timm_models import TimmBackbone
from sweeps.engine.dry_run import try_rows
from sweeps.engine.estimate import estimate
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import fresh_run, load_network
from sweeps.engine.plan import Plan
from sweeps.ray_backend.gpu_share import trial_bytes
from sweeps.spec import SpecError, load_spec
from sweeps.store import Store
from sweeps.sweep import Sweep
from tests.pretrained import HEADS, TUNED, few_digits, timm_weights
from tests.trained import train_sweep


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    timm_weights(tmp_path / "weights.pt")
    few_digits(tmp_path / "few.npz")
    return tmp_path


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("tuned")
    timm_weights(directory / "weights.pt")
    few_digits(directory / "few.npz")
    return train_sweep(directory, TUNED)


def first_trial(directory: Path, text: str = TUNED) -> TrialConfig:
    (directory / "tuned.yaml").write_text(text)
    trial = Plan(load_spec(directory / "tuned.yaml"), Store(directory / "runs")).next()
    assert trial is not None
    return trial.config


def test_rates_are_searched_and_records_hold_the_whole_network(sweep: Sweep) -> None:
    records = [sweep.store.record(key) for key in sweep.store.trial_keys()]
    assert [record.status for record in records if record is not None] == ["done"] * 3
    searched, confirmed = [], []
    for record in records:
        assert record is not None
        assert record.parameters > 370_000
        assert record.environment["timm"]
        (searched if record.config["phase"] == "search" else confirmed).append(record)
    assert len({r.config["hyperparameters"]["backbone_lr"] for r in searched}) == 2
    assert sweep.store.local is not None
    assert not (sweep.store.local / "embeddings").exists()
    (record,) = confirmed
    config = TrialConfig.model_validate(record.config)
    run = load_network(config, record, sweep.store)
    stored = sweep.store.predictions(record)["validation_logits"]
    assert torch.equal(run.predict_validation(), stored)


def test_checks_try_both_phases_and_estimate_the_whole_network(sweep: Sweep) -> None:
    assert [(tried.row, tried.failure) for tried in try_rows(sweep.loaded)] == [("standard", "")]
    assert all(seconds > 0 for seconds in estimate(sweep.loaded).values())
    assert trial_bytes(sweep.loaded) > 8 * 4 * 370_000


def test_keys_follow_the_content_of_weights_and_not_their_place(directory: Path) -> None:
    given = first_trial(directory)
    (directory / "weights.pt").rename(directory / "moved.pt")
    assert first_trial(directory, TUNED.replace("weights.pt", "moved.pt")).key() == given.key()
    timm_weights(directory / "weights.pt", seed=1)
    backbone._encoder.cache_clear()
    others = [
        TUNED,
        TUNED.replace("weights.pt", "moved.pt, head: mlp"),
        TUNED.replace("weights.pt", "moved.pt").replace("freeze_epochs: 1", "freeze_epochs: 2"),
        TUNED.replace("weights.pt", "moved.pt").replace("[0.1, 1]", "[0.2, 1]"),
    ]
    keys = {first_trial(directory, text).key() for text in others}
    assert len(keys | {given.key()}) == 5


def test_weights_that_changed_since_are_not_used(directory: Path) -> None:
    config = first_trial(directory)
    timm_weights(directory / "weights.pt", seed=5)
    backbone._encoder.cache_clear()
    with pytest.raises(ValueError, match=r"weights.pt are not those that the sweep was started"):
        fresh_run(config)


REFUSED = {
    "never": (TUNED.replace("freeze_epochs: 1", "freeze_epochs: 3"), "never be trained"),
    "negative": (TUNED.replace("freeze_epochs: 1", "freeze_epochs: -1"), "freeze_epochs.*-1"),
    "frozen": (
        TUNED.replace(", frozen: false", "").replace(", augmentation: [crop]", ""),
        r"methods.standard.backbone_lr.*no pretrained network to train; .*frozen: false",
    ),
    "another model": (
        HEADS.replace("gamma: 2", "gamma: 2, freeze_epochs: 1"),
        "methods.focal.freeze_epochs.*no pretrained network to train",
    ),
    "no weights": (TUNED.replace("weights.pt", "nowhere.pt"), "nowhere.pt: there is no such"),
    "other weights": (
        TUNED.replace("test_resnet.r160_in1k", "test_efficientnet.r160_in1k"),
        "weights.pt: lacks .* of timm:test_efficientnet.*another network",
    ),
    "a table": (
        TUNED.replace("{name: arrays, path: few.npz}", "iris").replace(
            ", augmentation: [crop]", ""
        ),
        "needs .* images.*'iris' has a table",
    ),
}


def test_a_family_may_be_good_for_heads_alone(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimmBackbone, "tunable", False)
    with pytest.raises(SpecError, match=r"model.frozen.*found false; only heads can be trained"):
        first_trial(directory)


@pytest.mark.parametrize("case", REFUSED)
def test_specs_that_do_not_fit_are_refused(case: str, directory: Path) -> None:
    text, message = REFUSED[case]
    (directory / "tuned.yaml").write_text(text)
    with pytest.raises(SpecError, match=message):
        load_spec(directory / "tuned.yaml")
