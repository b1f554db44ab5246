"""Whose a file is stands inside: what belongs to another trial or study is never used."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sweeps.engine.environment import environment
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import fresh_run, load_network
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.spec import load_spec
from sweeps.spec.schema import Evaluation
from sweeps.store import Store, StoreError, TrialRecord, encode_tensors
from sweeps.store.codec import encode_checkpoint, seal, unseal
from sweeps.sweep import open_sweep
from tests.outcomes import changed, evaluation, outcome, recorded
from tests.sweeps.conftest import checkpoint_of
from tests.trained import finish, train_sweep

EPOCHS = 6
SPEC = f"""\
name: bound
datasets: [blobs-1.7]
model: {{name: mlp, widths: [4]}}
methods: {{standard: {{lr: [0.01, 0.1, 0.3], weight_decay: 0}}}}
training: {{epochs: {EPOCHS}, batch_size: full, evaluate_every: 1}}
search: {{sampler: grid}}
confirm_seeds: 1
calibrators: [temperature]
"""
TRIALS = 3 + 1


def planned(directory: Path, text: str = SPEC) -> Plan:
    path = directory / "spec.yaml"
    path.write_text(text)
    plan = Plan(load_spec(path), Store(directory / "runs"))
    plan.replay()
    return plan


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep; to be copied."""
    directory = tmp_path_factory.mktemp("whole")
    train_sweep(directory, SPEC)
    return directory


def configs(plan: Plan, count: int) -> list[TrialConfig]:
    found = [plan.next() for _ in range(count)]
    return [trial.config for trial in found if trial is not None]


def trained(config: TrialConfig, store: Store) -> TrialRecord:
    attempt = TrialRun(config, store, calibrators=[], evaluation=Evaluation())
    while not attempt.advance(600):
        pass
    return recorded(store, config.key())


def half_trained(config: TrialConfig, store: Store) -> Path:
    """What a trial leaves that is killed after some epochs; where its checkpoint lies."""
    run = fresh_run(config)
    for _ in range(EPOCHS // 2):
        run.run_epoch()
    mine = {"lineage": "first", "times": [0.5] * (EPOCHS // 2)}
    store.write_checkpoint(config.key(), run.state_dict() | mine)
    store.write_live(config.key(), mine | {"curve": run.curve})
    assert store.local is not None
    return store.local / "records" / config.key() / "checkpoint.bin"


def aside(store: Store) -> list[str]:
    """Why things were set aside."""
    assert store.local is not None
    notes = sorted((store.local / "damaged").glob("*/reason.txt"))
    return [note.read_text().splitlines()[0] for note in notes]


def test_a_later_attempt_continues_its_own_checkpoint(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (config,) = configs(plan, 1)
    half_trained(config, plan.store)
    saved = plan.store.checkpoint(config.key())
    assert saved is not None
    record = trained(config, plan.store)
    assert record.lineage == saved["lineage"]
    assert list(record.times[: EPOCHS // 2]) == saved["times"]
    assert record.curve == trained(config, Store(tmp_path / "calm")).curve
    assert aside(plan.store) == []


def test_another_trial_s_checkpoint_is_not_continued(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planned(tmp_path)
    mine, other = configs(plan, 2)
    source = half_trained(other, plan.store)
    target = source.parent.parent / mine.key() / source.name
    target.parent.mkdir(exist_ok=True)
    for name in ("checkpoint.bin", "live.json"):
        shutil.copy(source.with_name(name), target.with_name(name))
    assert plan.store.live(mine.key()) is None
    with caplog.at_level(logging.WARNING, logger="calsweep"):
        record = trained(mine, plan.store)
    assert record.curve == trained(mine, Store(tmp_path / "calm")).curve
    assert [other.key() in reason for reason in aside(plan.store)] == [True, True]
    assert str(target) in caplog.text
    assert plan.store.checkpoint(other.key()) is not None  # its owner's stays


def test_a_checkpoint_that_names_nobody_is_not_continued(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (config,) = configs(plan, 1)
    path = half_trained(config, plan.store)
    saved = plan.store.checkpoint(config.key())
    assert saved is not None
    path.write_bytes(encode_checkpoint(saved))  # as before there were names
    assert trained(config, plan.store).lineage != saved["lineage"]
    assert aside(plan.store) == [
        f"records/{config.key()}/checkpoint.bin: it does not name its owner"
    ]


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda saved: saved.pop(name)


def with_(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda saved: saved.update({name: value})


def in_state(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda saved: saved["state"].update({name: value})


UNUSABLE: dict[str, Callable[[dict[str, Any]], None]] = {
    "another format": with_("format", 1),
    "no format": without("format"),
    "no state": without("state"),
    "no lineage": without("lineage"),
    "no best": without("best"),
    "no times": without("times"),
    "too few times": with_("times", [0.0]),
    "times in words": with_("times", ["a", "b", "c"]),
    "times that no clock shows": with_("times", [10**400] * 3),
    "other shape": in_state("parameters", torch.zeros(3)),
    "other type": in_state("parameters", "weights"),
    "no optimiser": in_state("optimiser", {}),
    "unknown part": in_state("unknown", {}),
    "buffers of another": in_state("buffers", {"running_mean": torch.zeros(4)}),
    "best of another shape": lambda saved: saved["best"].update(parameters=torch.zeros(1)),
    "an epoch beyond the last": with_("epoch", 10**9),
    "a negative epoch": with_("epoch", -1),
    "half an epoch": with_("epoch", 2.5),
    "another epoch than the curve": with_("epoch", 1),
    "a curve of words": with_("curve", ["one", "two", "three"]),
    "negative seconds": with_("seconds", -1.0),
    "snapshots that are none": with_("snapshots", [{"epoch": "three"}]),
}


@pytest.mark.parametrize("how", UNUSABLE)
def test_an_unusable_checkpoint_is_set_aside_and_the_trial_starts_anew(
    tmp_path: Path, how: str
) -> None:
    plan = planned(tmp_path)
    (config,) = configs(plan, 1)
    half_trained(config, plan.store)
    saved = plan.store.checkpoint(config.key())
    assert saved is not None
    UNUSABLE[how](saved)
    plan.store.write_checkpoint(config.key(), saved)
    record = trained(config, plan.store)
    assert record.status == "done"
    assert record.lineage != saved.get("lineage")
    assert len(record.times) == EPOCHS
    assert record.curve == trained(config, Store(tmp_path / "calm")).curve
    assert len(aside(plan.store)) == 1


def test_a_damaged_checkpoint_is_set_aside_and_the_trial_starts_anew(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (config,) = configs(plan, 1)
    path = half_trained(config, plan.store)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    record = trained(config, plan.store)
    assert (record.status, record.lineage != "first") == ("done", True)
    assert record.curve == trained(config, Store(tmp_path / "calm")).curve
    (reason,) = aside(plan.store)
    assert reason.startswith(f"records/{config.key()}/checkpoint.bin: ")


def test_what_is_no_state_changes_nothing_in_a_run(tmp_path: Path) -> None:
    (config,) = configs(planned(tmp_path), 1)
    run = fresh_run(config)
    run.run_epoch()
    before = encode_tensors(run.state_dict())
    # The trial's own:
    ours = {"no lineage", *(how for how in UNUSABLE if "times" in how)}
    for how in UNUSABLE.keys() - ours:
        further = fresh_run(config)
        further.run_epoch()
        further.run_epoch()
        saved = further.state_dict()
        UNUSABLE[how](saved)
        with pytest.raises(ValueError, match=r"found|not the state"):
            run.load_state_dict(saved)
        assert encode_tensors(run.state_dict()) == before
    run.load_state_dict(further.state_dict())
    assert run.epoch == 2


FORGETFUL = """
from torch.nn import functional as F

from calibration.methods import LossMethod


class Counting(LossMethod):
    description = "what it keeps has another form than it has now"

    def initial(self, learner, parameters):
        return {"kept": parameters.new_zeros(2)}

    def loss(self, output, labels, numbers):
        return F.cross_entropy(output.logits, labels)

    def end_epoch(self, learner, state, see_held_out, numbers):
        return state._replace(method={"kept": state.method["kept"] + numbers["lr"].new_ones(2)})
"""


def test_what_a_changed_method_cannot_go_on_from_is_trained_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = SPEC.replace("standard: {", 'mine: {method: "forgetful:Counting", ')
    plan = planned(tmp_path, text)
    (config,) = configs(plan, 1)
    half_trained(config, plan.store)
    saved = plan.store.checkpoint(config.key())
    assert saved is not None
    saved["state"]["method"] = {"kept": torch.zeros(5)}
    plan.store.write_checkpoint(config.key(), saved)
    record = trained(config, plan.store)
    assert (record.status, record.epochs) == ("done", EPOCHS)
    assert record.curve == trained(config, Store(tmp_path / "calm")).curve
    (reason,) = aside(plan.store)
    assert "cannot continue from it" in reason


class Evil:
    """Unpickled, it makes a directory."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.mark,)


def test_a_hostile_checkpoint_runs_nothing_and_costs_nothing(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (config,) = configs(plan, 1)
    path = half_trained(config, plan.store)
    content = encode_tensors({"state": Evil(tmp_path / "executed")})
    path.write_bytes(checkpoint_of(content))
    assert trained(config, plan.store).status == "done"
    assert len(aside(plan.store)) == 1
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("how", ["hostile", "of another network", "something else"])
def test_a_network_that_is_none_is_refused_in_one_message(
    whole: Path, tmp_path: Path, how: str
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    swept = open_sweep("bound", Store(tmp_path / "runs"))
    (trial,) = swept.plan.confirmed("blobs-1.7", "standard")
    record = recorded(swept.store, trial.key)
    saved = swept.store.tensors(record, "network.pt")
    assert saved is not None
    content = {
        "hostile": {"parameters": Evil(tmp_path / "executed")},
        "of another network": saved | {"parameters": torch.zeros(5)},
        "something else": {"weights": torch.zeros(5)},
    }[how]
    swept.store.retire(record)
    files = {"network.pt": encode_tensors(content)}
    assert swept.store.file_record(trial.key, changed(record), files)
    record = recorded(swept.store, trial.key)
    with pytest.raises(StoreError, match=r"network\.pt") as caught:
        load_network(trial.config, record, swept.store)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "executed").exists()


def test_copied_suggestions_stopped_trials_and_maps_are_not_taken(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one, other, key = "blobs/standard/0123", "blobs/focal/0123", "ab" * 16
    store.write_suggestion("sweep", one, 0, {"number": 0, "hyperparameters": {"lr": 0.1}})
    store.file_stopped("sweep", one, key, outcome("pruned"))
    for study, name in ((other, "000000.json"), (one, "000001.json")):
        target = tmp_path / "sweep" / "suggestions" / study / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "sweep" / "suggestions" / one / "000000.json", target)
    shutil.copytree(tmp_path / "sweep" / "stopped" / one, tmp_path / "sweep" / "stopped" / other)
    assert list(store.suggestions("sweep", one)) == [0]
    assert store.suggestions("sweep", other) == {}
    assert store.stopped("sweep", one, key) is not None
    assert store.stopped("sweep", other, key) is None
    homes = []
    for each in ("aa", "bb"):
        store.file_record(each, outcome(), {"predictions.npz": each.encode()})
        homes += [path for path in (tmp_path / "records" / each).iterdir() if path.is_dir()]
    made = evaluation()
    store.write_evaluation("aa", "15-bins", "temperature", made)
    shutil.copytree(homes[0] / "evaluations", homes[1] / "evaluations")
    shutil.copytree(homes[0] / "evaluations" / "15-bins", homes[0] / "evaluations" / "30-bins")
    assert store.evaluations(recorded(store, "aa"), "15-bins") == {"temperature": made}
    assert store.evaluations(recorded(store, "aa"), "30-bins") == {}
    assert store.evaluations(recorded(store, "bb"), "15-bins") == {}
    # Two suggestions, a stopped trial and two calibrators; a renamed sweep keeps what is its own.
    assert len(aside(store)) == 5
    (tmp_path / "sweep").rename(tmp_path / "renamed")
    assert list(store.suggestions("renamed", one)) == [0]
    assert store.stopped("renamed", one, key) is not None


def test_what_names_no_place_is_set_aside(tmp_path: Path) -> None:
    store, study = Store(tmp_path), "blobs/standard/0123"
    path = tmp_path / "sweep" / "suggestions" / study / "000000.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(seal({"number": 0, "hyperparameters": {"lr": 0.1}}))
    assert store.suggestions("sweep", study) == {}
    assert [reason.rpartition(": ")[2] for reason in aside(store)] == ["it does not name its owner"]


EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "negative seconds": with_("seconds", -5.0),
    "endless seconds": with_("seconds", float("inf")),
    "no seconds": without("seconds"),
    "no times": without("times"),
    "an NLL below zero": lambda record: record["validation"].update(nll=-1e300),
    "an error above one": lambda record: record["validation"].update(error=12.0),
    "an ECE in words": lambda record: record["validation"].update(ece="small"),
    "no validation": without("validation"),
    "an empty validation": with_("validation", {}),
    "another status": with_("status", "splendid"),
    "a failure for no reason": with_("status", "failed"),
    "an unknown entry": with_("remark", "mine"),
    "files of words": with_("files", {"network.pt": "here"}),
    "a curve that is none": with_("curve", [1, 2, 3]),
    "a curve that goes back": lambda record: record["curve"].append(dict(record["curve"][0])),
}


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what a file says, and make its checksum right."""
    values = unseal(path.read_bytes())
    change(values)
    path.write_bytes(seal({n: v for n, v in values.items() if n not in ("checksum", "format")}))


@pytest.mark.parametrize("how", EDITS)
def test_an_edited_record_with_a_right_checksum_is_set_aside_and_trained_anew(
    whole: Path, tmp_path: Path, how: str
) -> None:
    place = Path(shutil.copytree(whole, tmp_path / "copy"))
    path = sorted((place / "runs" / "records").glob("*/record.json"))[0]
    store, key = Store(place / "runs"), path.parent.name
    before = recorded(store, key)
    edit(path, EDITS[how])
    assert store.record(key) is None
    (reason,) = aside(store)
    assert reason.startswith(f"records/{key}/record.json: no training produces such a record: ")
    finish(place / "spec.yaml", store)
    again = recorded(store, key)
    assert again.attempt != before.attempt
    assert again.curve == before.curve
    assert [recorded(store, k).status for k in store.trial_keys()] == ["done"] * TRIALS
    assert len(aside(store)) == 1


def test_numbers_that_are_merely_bad_are_no_edits(whole: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(whole, tmp_path / "copy"))
    path = sorted((place / "runs" / "records").glob("*/record.json"))[0]
    store, key = Store(place / "runs"), path.parent.name
    attempt = recorded(store, key).attempt
    bad = {"nll": 1e300, "own": float("nan")}
    edit(path, lambda record: record["validation"].update(bad))
    finish(place / "spec.yaml", store)
    assert recorded(store, key).attempt == attempt
    assert recorded(store, key).validation["nll"] == 1e300
    assert aside(store) == []


EVALUATION_EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "an ECE above one": lambda found: found["test"].update(ece=1.5),
    "an NLL below zero": lambda found: found["validation"].update(nll=-0.1),
    "an ECE in words": lambda found: found["test"].update(ece="small"),
    "an unknown entry": with_("remark", "mine"),
    "no test": without("test"),
    "an empty test": with_("test", {}),
    "no floor": with_("floor", None),
    "half an interval": with_("intervals", {"ece": [0.1]}),
    "no version": without("version"),
    "no word on convergence": without("converged"),
}


def evaluated(store: Store) -> tuple[TrialRecord, Path]:
    """The one confirm trial, and where an evaluation of it lies."""
    assert store.local is not None
    (path,) = store.local.glob("records/*/*/evaluations/*/temperature.json")
    return recorded(store, path.relative_to(store.local).parts[1]), path


@pytest.mark.parametrize("how", EVALUATION_EDITS)
def test_an_edited_evaluation_with_a_right_checksum_is_set_aside_and_made_anew(
    whole: Path, tmp_path: Path, how: str
) -> None:
    place = Path(shutil.copytree(whole, tmp_path / "copy"))
    store = Store(place / "runs")
    record, path = evaluated(store)
    before = store.evaluations(record, path.parent.name)
    edit(path, EVALUATION_EDITS[how])
    found = store.evaluations(record, path.parent.name)
    assert found == {name: made for name, made in before.items() if name != "temperature"}
    (reason,) = aside(store)
    assert reason.startswith(
        f"{path.relative_to(place / 'runs')}: no evaluation produces such values: "
    )
    finish(place / "spec.yaml", store)
    assert recorded(store, record.key) == record  # nothing is trained for it
    again = store.evaluations(record, path.parent.name)
    assert again.keys() == before.keys()
    assert again["temperature"].test == before["temperature"].test
    assert len(aside(store)) == 1


def test_an_evaluation_of_a_version_that_is_no_name_is_made_anew(
    whole: Path, tmp_path: Path
) -> None:
    place = Path(shutil.copytree(whole, tmp_path / "copy"))
    store = Store(place / "runs")
    record, path = evaluated(store)
    before = store.evaluations(record, path.parent.name)["temperature"]
    edit(path, with_("version", "../../another"))
    finish(place / "spec.yaml", store)
    again = store.evaluations(record, path.parent.name)["temperature"]
    assert (again.version, again.test) == (before.version, before.test)
    older = path.parents[2] / "older-evaluations" / path.parent.name
    assert [file.name for file in older.iterdir()] == ["temperature..._.._another.json"]
    assert aside(store) == []


@pytest.mark.parametrize("made", [{}, {"hyperparameters": {"lr": 7.0}}, {"hyperparameters": 3}])
def test_a_suggestion_that_its_study_cannot_have_made_is_made_anew(
    whole: Path, tmp_path: Path, made: dict[str, Any]
) -> None:
    place = Path(shutil.copytree(whole, tmp_path / "copy"))
    store = Store(place / "runs")
    plan = Plan(load_spec(place / "spec.yaml"), store)
    (cell,) = plan.cells.values()
    before = store.suggestions("bound", cell.study_id)
    store.write_suggestion("bound", cell.study_id, 1, made)
    finish(place / "spec.yaml", store)
    assert store.suggestions("bound", cell.study_id) == before
    assert len(aside(store)) == 1


def test_the_processor_is_on_record(whole: Path) -> None:
    store = Store(whole / "runs")
    for key in store.trial_keys():
        record = recorded(store, key)
        assert record.environment == environment()
        assert record.environment["cpu"]
        assert record.environment["instructions"] == torch.backends.cpu.get_cpu_capability()
        assert "gpu" not in record.environment
