"""CPU seconds and interleaved reference work, through checkpoints and into the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.engine import pace, trial
from sweeps.engine.cell import Cells
from sweeps.engine.identity import TrialConfig
from sweeps.engine.trial import TrialRun
from sweeps.nightly.run.collection import _pace
from sweeps.spec import read_spec
from sweeps.store import ReferenceTimes, Store, TrialRecord

SPEC = """\
name: paced
datasets: [iris]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: 0.05, weight_decay: 0}}
training: {epochs: 6, batch_size: full}
confirm_seeds: 1
"""


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> TrialConfig:
    """A trial; a piece of reference work follows every epoch, and takes a second of two."""
    monkeypatch.setattr(pace, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(pace, "_timed", lambda device: (1.0, 2.0))
    make = Cells(read_spec(SPEC, Path("spec.yaml"), Path.cwd()))
    return make.search_trial(make.cell("iris", "standard"), 0, {"lr": 0.05}).config


def run(config: TrialConfig, store: Store, *, paced: bool, rungs: tuple[int, ...] = ()) -> TrialRun:
    evaluation = read_spec(SPEC, Path("spec.yaml"), Path.cwd()).spec.evaluation
    return TrialRun(config, store, calibrators=[], evaluation=evaluation, rungs=rungs, paced=paced)


def test_reference_work_is_done_between_epochs_where_it_is_asked_for(
    config: TrialConfig, tmp_path: Path
) -> None:
    found = {}
    for paced in (True, False):
        store = Store(tmp_path / str(paced))
        assert run(config, store, paced=paced).advance(600)
        record = store.record(config.key())
        assert record is not None
        found[paced] = record
    assert found[True].reference == ReferenceTimes(
        version=pace.VERSION, repeats=6, cpu_seconds=6.0, seconds=12.0
    )
    assert found[False].reference is None
    assert found[True].curve == found[False].curve, "it changes no number"
    for record in found.values():
        assert 0 < record.cpu_seconds < 60


def test_a_training_that_is_continued_has_what_it_took_before(
    config: TrialConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "CHECKPOINT_SECONDS", 0.0)
    store = Store(tmp_path)
    first = run(config, store, paced=True, rungs=(3,))
    first._save_again_after = 0.0
    assert not first.advance(600)
    saved = store.checkpoint(config.key())
    assert saved is not None
    assert saved["reference"]["repeats"] == saved["epoch"] <= 3
    second = run(config, store, paced=True)
    assert second.advance(600)
    record = store.record(config.key())
    assert record is not None
    assert record.reference is not None
    assert record.reference.repeats == 6
    assert 0 < saved["cpu_seconds"] < record.cpu_seconds


def test_a_gpu_is_judged_by_its_own_seconds() -> None:
    """On CPUs the process's count, on a GPU the clock's: waiting for it needs no processor."""
    times = ReferenceTimes(version=pace.VERSION, repeats=4, cpu_seconds=0.4, seconds=0.8)
    usual = {"seconds": 10.0, "cpu_seconds": 3.0, "reference": times}
    on_cpu = TrialRecord.model_construct(key="c", resources={"gpu": 0.0}, **usual)
    on_gpu = TrialRecord.model_construct(key="g", resources={"gpu": 0.5}, **usual)
    old = TrialRecord.model_construct(
        key="o", resources={}, **usual | {"reference": times.model_copy(update={"version": 0})}
    )
    assert (on_cpu.seconds_alone, on_gpu.seconds_alone) == (3.0, 10.0)
    found = _pace([on_cpu, on_gpu, old])
    assert found["reference"] == pytest.approx({"c": 0.1, "g": 0.2}), "versions are never mixed"
    assert found["busy"] == {"c": 2.0, "g": 1.0}
