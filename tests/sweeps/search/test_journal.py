"""The journal for optuna-dashboard: what Optuna and the dashboard itself read in it."""

from __future__ import annotations

import json
import logging
import math
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from calibration.hyperparameters import Choice, Integer, LogUniform, Uniform
from sweeps.search import Result, Study
from sweeps.search.config import SchedulerConfig, SearchConfig
from sweeps.search.journal import Journal
from sweeps.search.space import Space
from tests.disks import read_only
from tests.ports import free_port
from tests.waiting import DIRECT, answers, wait_for

SPACE = Space(
    {"weight_decay": 0.0},
    {
        "lr": LogUniform(1e-3, 1.0),
        "steps": Integer(1, 20, log=True),
        "loss": Choice(("ce", "focal", 3, True, 0.5)),
        "gamma": Uniform(0.0, 5.0),
    },
    {"gamma": {"loss": ("focal",)}},
)
FIELDS = ("number", "state", "values", "params", "distributions", "intermediate_values")


def one_objective() -> Study:
    config = SearchConfig(sampler="cmaes", trials=20)
    scheduler = SchedulerConfig(name="asha", grace=2)
    return Study(SPACE, config, 0, "blobs/focal", scheduler=scheduler, epochs=20)


def two_objectives() -> Study:
    config = SearchConfig(sampler="nsga2", trials=20, objective=["error", "accuracy"])
    return Study(SPACE, config, 0, "blobs/mixup")


def trained(study: Study, journal: Journal | None, name: str, trials: int) -> None:
    """Every fourth trial fails; those with one objective may be stopped; the last runs on."""
    for _ in range(trials):
        number, values = study.ask()
        if journal is not None:
            journal.asked(name, study, number)
        nll = math.log(values["lr"]) ** 2
        stopped = any(study.report(number, epoch, nll + 1 / epoch) for epoch in study.rungs)
        state: Any = "failed" if number % 4 == 2 else "pruned" if stopped else "done"
        values = (nll, 1.0 - nll)[: len(study.config.objective)]
        study.tell(number, Result(values, nll, 90.0, state))
        if journal is not None:
            journal.told(name, study, number)
    number, _ = study.ask()
    if journal is not None:
        journal.asked(name, study, number)


def loaded(path: Path, name: str) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name=name, storage=storage)


def account(trials: list[optuna.trial.FrozenTrial]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(trial, field) for field in FIELDS) for trial in trials]


def test_optuna_reads_the_appended_studies_back_as_they_are(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "optuna.log")
    first, second = one_objective(), two_objectives()
    journal.rebuild({"a": first})
    trained(first, journal, "a", 9)
    trained(second, journal, "b", 9)
    trained(first, journal, "a", 5)
    for name, study in (("a", first), ("b", second)):
        read = loaded(journal.path, name)
        assert account(read.trials) == account(study.trials())
        assert [d.name.lower() for d in read.directions] == [
            objective.direction for objective in study.config.objective
        ]
        assert read.metric_names == [objective.metric for objective in study.config.objective]
    states = {trial.state for trial in first.trials()}
    assert states == {
        TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL,
    }  # fmt: skip
    assert loaded(journal.path, "a").best_trial.number == first.best()
    assert [t.number for t in loaded(journal.path, "b").best_trials] == second.front()


def test_a_rebuilt_journal_is_what_optunas_own_storage_would_hold(tmp_path: Path) -> None:
    studies = {"a": one_objective(), "b": two_objectives()}
    for study in studies.values():
        trained(study, None, "", 12)
    journal = Journal(tmp_path / "optuna.log")
    journal.path.write_text("whatever stood there")
    journal.rebuild(studies)
    own = JournalStorage(JournalFileBackend(str(tmp_path / "own.log")))
    for name, study in studies.items():
        copy = optuna.create_study(
            study_name=name,
            storage=own,
            directions=[objective.direction for objective in study.config.objective],
        )
        with pytest.warns(optuna.exceptions.ExperimentalWarning):
            copy.set_metric_names([objective.metric for objective in study.config.objective])
        for trial in study.trials():
            trial = optuna.trial.FrozenTrial(**vars_of(trial, system_attrs={}))
            own.create_new_trial(copy._study_id, template_trial=trial)
    lines, wanted = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (journal.path, tmp_path / "own.log")
    )
    for line in (*lines, *wanted):
        line.pop("worker_id")
        line.pop("datetime_start", None)
    assert lines == wanted


def vars_of(trial: optuna.trial.FrozenTrial, **changed: Any) -> dict[str, Any]:
    several = trial.values is not None and len(trial.values) > 1
    return {
        "trial_id": 0,
        "value": None if several else trial.value,
        "values": trial.values if several else None,
        "datetime_start": trial.datetime_start,
        "datetime_complete": trial.datetime_complete,
        "user_attrs": {},
        **{name: getattr(trial, name) for name in FIELDS if name != "values"},
        **changed,
    }


def test_a_rebuilt_journal_goes_on_and_keeps_the_trials_durations(tmp_path: Path) -> None:
    study = one_objective()
    trained(study, None, "", 6)
    journal = Journal(tmp_path / "new" / "optuna.log")
    journal.rebuild({"a": study})
    study.tell(6, Result((0.25,), 0.25, 1.0, "done"))
    journal.told("a", study, 6)
    trained(study, journal, "a", 3)
    read = loaded(journal.path, "a")
    assert account(read.trials) == account(study.trials())
    assert read.trials[0].duration == timedelta(seconds=90)
    assert [p.name for p in journal.path.parent.iterdir()] == ["optuna.log"]


def test_trials_that_were_not_announced_are_caught_up_with(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "optuna.log")
    journal.rebuild({})
    study = one_objective()
    trained(study, None, "", 5)
    journal.told("a", study, 4)
    journal.asked("a", study, 5)
    journal.asked("a", study, 5)
    assert account(loaded(journal.path, "a").trials) == account(study.trials())


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Writing beyond ``size`` bytes fails in this process, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_logged_once_and_leaves_a_readable_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path / "optuna.log")
    study = one_objective()
    journal.rebuild({"a": study})
    trained(study, journal, "a", 3)
    before = account(study.trials())
    size = journal.path.stat().st_size
    with files_limited_to(size + 40), caplog.at_level(logging.WARNING, "calsweep"):
        trained(study, journal, "a", 3)
    trained(study, journal, "a", 3)
    assert len(caplog.records) == 1
    assert "optuna-dashboard" in caplog.text
    assert journal.path.stat().st_size == size
    assert account(loaded(journal.path, "a").trials) == before
    journal.rebuild({"a": study})
    trained(study, journal, "a", 3)
    assert account(loaded(journal.path, "a").trials) == account(study.trials())


def test_a_place_that_cannot_be_written_is_logged_and_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    study = one_objective()
    for path in (tmp_path / "file" / "optuna.log", tmp_path / "optuna.log"):
        journal = Journal(path)
        journal.rebuild({"a": study})
        if path.exists():
            path.unlink()
        trained(study, journal, "a", 2)
        assert not path.exists()
    assert len(caplog.records) == 2


def test_a_read_only_place_is_left_to_the_store_to_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "place").mkdir()
    journal = Journal(tmp_path / "place" / "optuna.log")
    study = one_objective()
    journal.rebuild({"a": study})
    with read_only(tmp_path / "place"):
        trained(study, journal, "a", 2)
    trained(study, journal, "a", 2)
    assert not caplog.records
    assert not loaded(journal.path, "a").trials


@pytest.mark.slow
def test_the_dashboard_shows_the_studies_as_they_grow(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "optuna.log")
    studies = {"blobs/focal": one_objective(), "blobs/mixup": two_objectives()}
    for study in studies.values():
        trained(study, None, "", 6)
    journal.rebuild(studies)
    with dashboard(journal.path) as ask:
        listed = {s["study_name"]: s for s in ask("/api/studies")["study_summaries"]}
        assert listed.keys() == studies.keys()
        assert listed["blobs/mixup"]["directions"] == ["minimize", "maximize"]
        first = studies["blobs/focal"]
        trained(first, journal, "blobs/focal", 4)
        shown = ask(f"/api/studies/{listed['blobs/focal']['study_id']}")
        assert [t["state"] for t in shown["trials"]] == [
            {"FAIL": "Fail", "PRUNED": "Pruned"}.get(t.state.name, t.state.name.capitalize())
            for t in first.trials()
        ]
        assert shown["best_trials"][0]["number"] == first.best()
        assert tuple(shown["best_trials"][0]["values"]) == first.values(first.best() or 0)
        shown = ask(f"/api/studies/{listed['blobs/mixup']['study_id']}")
        assert sorted(t["number"] for t in shown["best_trials"]) == studies["blobs/mixup"].front()
        assert shown["objective_names"] == ["error", "accuracy"]


@contextmanager
def dashboard(path: Path) -> Iterator[Any]:
    port = free_port()
    code = "from optuna_dashboard._cli import main; main()"
    arguments = [str(path), "--host", "127.0.0.1", "--port", str(port), "--server", "wsgiref"]

    def ask(place: str) -> Any:
        with DIRECT.open(f"http://127.0.0.1:{port}{place}") as answer:
            return json.load(answer)

    log = path.with_name("dashboard.txt")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdout=output, stderr=output
        )
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}/api/meta"), process, log=log)
            yield ask
        finally:
            process.kill()
            process.wait()
