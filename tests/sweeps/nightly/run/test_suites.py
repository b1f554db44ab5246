"""Suites: the ready one, bad ones with their remedies, and the sweeps of a night."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.cli.main import main
from sweeps.nightly.run.suite import for_night, load_suite
from sweeps.spec import SpecError
from sweeps.specs import SPECS
from sweeps.store import Store
from sweeps.sweep import SPEC, open_sweep, saved_state
from tests.sweeps.nightly.kit import SEARCHED

GOOD = "name: mine\nsweeps:\n  - a.yaml\n"


def written(directory: Path, suite: str, sweep: str = SEARCHED) -> Path:
    (directory / "a.yaml").write_text(sweep)
    (directory / "b.yaml").write_text(sweep)
    path = directory / "suite.yaml"
    path.write_text(suite)
    return path


def test_the_ready_suite_is_whole_and_repeatable() -> None:
    suite = load_suite()
    assert suite.name == "nightly"
    assert list(suite.sweeps) == ["bo4sc", "meta_regularization", "digits"]
    assert suite.suite.time_limit == 2400
    files = {SPECS / entry for entry in suite.suite.sweeps}
    assert files == set((SPECS / "nightly").glob("*.yaml")), "a sweep that no suite runs"
    for sweep in suite.sweeps.values():
        assert 5 <= sweep.spec.confirm_seeds <= 8
        assert "temperature" in sweep.spec.calibrator_names
    assert load_suite(Path("nightly")).sweeps.keys() == suite.sweeps.keys()


@pytest.mark.parametrize(
    ("suite", "sweep", "complaint"),
    [
        ("name: mine\n", SEARCHED, "suite.yaml:1: sweeps: is required and missing"),
        (
            GOOD.replace("a.yaml", "c.yaml"),
            SEARCHED,
            "suite.yaml:3: sweeps.0: found 'c.yaml'; no such file",
        ),
        (GOOD + "  - b.yaml\n", SEARCHED, "suite.yaml:4: sweeps.1: a second sweep is named 'sea"),
        (GOOD + "jugde: {}\n", SEARCHED, "suite.yaml:4: jugde: unknown key; did you mean 'judge'"),
        (GOOD + "judge: {level: 2}\n", SEARCHED, "suite.yaml:4: judge.level: found 2; input shou"),
        (GOOD + "judge: {minimum: {mce: 1}}\n", SEARCHED, "'mce' is not judged; choose from ece"),
        (GOOD + "time_limit: 5 apples\n", SEARCHED, "suite.yaml:4: time_limit: found '5 apples';"),
        (GOOD.replace("mine", "a/b"), SEARCHED, "suite.yaml:1: name: found 'a/b'"),
        (SEARCHED, SEARCHED, "this is the spec of one sweep; a suite lists such files"),
        ("- a.yaml\n", SEARCHED, "found list; expected a mapping"),
        (GOOD, SEARCHED.replace("grid", "tpe"), "a.yaml:7: search.sampler: found 'tpe', which le"),
        (
            GOOD,
            SEARCHED.replace("sampler: grid", "time: 60"),
            "a.yaml:7: search.time: found 60 s: ",
        ),
        (GOOD, SEARCHED + "scheduler: asha\n", "a.yaml:10: scheduler: found 'asha', which stops"),
        (GOOD, SEARCHED + "tracking: http://x:5000\n", "a.yaml:10: tracking: a suite's sweeps are"),
        (GOOD, SEARCHED.replace("iris", "irsi"), "a.yaml:2: datasets.0: "),
        (
            GOOD,
            SEARCHED.replace("confirm_seeds: 3", "confirm_seeds: 2"),
            "a.yaml:8: confirm_seeds: found 2; nights are compared over seeds",
        ),
    ],
)
def test_a_bad_suite_is_refused_with_its_place_and_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suite: str, sweep: str, complaint: str
) -> None:
    path = written(tmp_path, suite, sweep)
    with pytest.raises(SpecError) as error:
        load_suite(path)
    assert complaint in str(error.value)
    assert main(["nightly", str(path), "--nights", str(tmp_path / "nights")]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "nights").exists()


def test_few_seeds_are_allowed_and_said_to_detect_little(tmp_path: Path) -> None:
    (note,) = load_suite(written(tmp_path, GOOD)).notes
    assert note.startswith("searched: 3 seeds: a comparison over fewer than 5 detects little")
    five = SEARCHED.replace("confirm_seeds: 3", "confirm_seeds: 5")
    assert load_suite(written(tmp_path, GOOD, five)).notes == []


def test_sampling_that_searches_nothing_may_be_of_any_kind(tmp_path: Path) -> None:
    fixed = SEARCHED.replace("gamma: [1, 2]", "gamma: 1").replace("grid", "tpe")
    assert list(load_suite(written(tmp_path, GOOD, fixed)).sweeps) == ["searched"]


def test_a_nights_sweep_is_called_by_its_date_and_opened_from_the_store(tmp_path: Path) -> None:
    anchored = SEARCHED.replace("{lr: 0.05, ", "{<<: *own, ") + "x-own: &own {lr: 0.05}\n"
    lines = anchored.splitlines()
    path = written(tmp_path, GOOD, "\n".join([lines[-1], *lines[:-1]]) + "\n")
    (loaded,) = load_suite(path).sweeps.values()
    dated = for_night(loaded, "mine", "2026-01-05")
    assert dated.spec.name == "searched-2026-01-05"
    assert dated.spec.tracking.experiment == "mine"
    store = Store(tmp_path / "runs")
    store.write_file(dated.spec.name, SPEC, dated.text.encode())
    store.write_state(dated.spec.name, saved_state(dated, store))
    opened = open_sweep("searched-2026-01-05", store)
    assert opened.spec == dated.spec
    assert opened.spec.methods == loaded.spec.methods
    assert "&" not in dated.text, "no anchors: it is read by people"
