"""Specs: what is accepted, and what a person reads when it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from calibration.hyperparameters import Choice, Uniform
from sweeps.spec import SpecError, load_spec, read_spec
from sweeps.specs import ready_specs

GOOD = """\
name: small
datasets: [blobs-1.7]
methods: [standard]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(SpecError) as error:
        load_spec(written(tmp_path, text))
    return str(error.value)


def test_a_short_spec_is_enough_and_gets_the_documented_defaults(tmp_path: Path) -> None:
    loaded = load_spec(written(tmp_path, GOOD))
    spec = loaded.spec
    assert spec.search.sampler == "tpe"
    assert [objective.metric for objective in spec.search.objective] == ["nll"]
    assert spec.search.limit == 12
    assert spec.scheduler.name == "none"
    assert spec.confirm_seeds == 5
    assert spec.bins == 15
    assert spec.protocol.name == "honest"
    assert spec.calibrator_names[0] == "identity"
    assert "temperature" in spec.calibrator_names
    assert list(loaded.datasets) == ["blobs-1.7"]


def test_methods_can_be_written_in_three_ways(tmp_path: Path) -> None:
    base = "name: a\ndatasets: [blobs-1.7]\n"
    forms = [
        "methods: [standard, {focal: {gamma: [1, 2]}}]",
        "methods: {standard: , focal: {gamma: [1, 2]}}",
    ]
    for form in forms:
        spec = load_spec(written(tmp_path, base + form)).spec
        assert list(spec.methods) == ["standard", "focal"]
        assert spec.space("focal").searched["gamma"] == Choice((1, 2))
    everything = load_spec(written(tmp_path, base + "methods: all")).spec
    assert {"standard", "label_smoothing", "focal"} <= set(everything.methods)


def test_relative_paths_start_at_the_spec(tmp_path: Path) -> None:
    rows = "\n".join(f"{i / 50},{'yes' if i % 2 else 'no'}" for i in range(50))
    (tmp_path / "my.csv").write_text(f"x,label\n{rows}\n")
    text = "name: own\ndatasets: [{name: table, path: my.csv, target: label}]\nmethods: [standard]"
    loaded = load_spec(written(tmp_path, text))
    (dataset,) = loaded.datasets.values()
    assert dataset.classes == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", [":1", "not valid YAML"]),
        ("- a\n- b", ["expected a mapping"]),
        ("", ["expected a mapping"]),
        ("datasets: [blobs-1.7]\nmethods: [standard]", ["name", "missing"]),
        (GOOD + "epochs: 3", [":4", "epochs", "unknown key"]),
        (GOOD + "serch: {trials: 3}", [":4", "serch", "did you mean 'search'"]),
        (GOOD + "training: {epoch: 3}", [":4", "training.epoch", "did you mean 'epochs'"]),
        (GOOD + "training: {epochs: 0}", ["training.epochs", "0", "greater than or equal to 1"]),
        (GOOD + "training: {epochs: many}", ["training.epochs", "'many'", "integer"]),
        (GOOD + "search:\n  trials: 5\n  sampler: tpa", [":6", "search.sampler", "'tpa'", "tpe"]),
        (GOOD + "confirm_seeds: .nan", [":4", "confirm_seeds", "nan"]),
        (GOOD + "name: again", [":4", "name", "twice", "line 1"]),
        (GOOD.replace("small", "../up"), [":1", "name", "'../up'"]),
        (GOOD.replace("small", "records"), [":1", "name", "records"]),
        (GOOD.replace("blobs-1.7", "blob-1.7"), [":2", "datasets.0", "did you mean 'blobs-1.7'"]),
        (GOOD.replace("[blobs-1.7]", "[]"), [":2", "datasets", "at least 1"]),
        (GOOD.replace("[blobs-1.7]", "[blobs-1.7, blobs-1.7]"), ["datasets.1", "second"]),
        (GOOD.replace("[standard]", "[standrad]"), [":3", "did you mean 'standard'"]),
        (GOOD.replace("[standard]", "[]"), [":3", "methods", "at least 1"]),
        (GOOD.replace("[standard]", "[standard, standard]"), [":3", "methods", "twice"]),
        (GOOD.replace("[standard]", "{focal: {gama: 1}}"), ["methods.focal.gama", "'gamma'"]),
        (GOOD.replace("[standard]", "{focal: {gamma: -1}}"), ["methods.focal.gamma", "-1"]),
        (
            GOOD.replace("[standard]", "{focal: {gamma: []}}"),
            ["methods.focal.gamma", "at least one"],
        ),
        (
            GOOD.replace("[standard]", "{focal: {gamma: {uniform: [5, 1]}}}"),
            ["methods.focal.gamma", "[5, 1]", "low must be below high"],
        ),
        (
            GOOD.replace("[standard]", "{focal: {gamma: {uniform: [1, 500]}}}"),
            ["methods.focal.gamma", "500", "less than or equal to 20"],
        ),
        (GOOD + "model: mlpp", [":4", "model", "did you mean 'mlp'"]),
        (GOOD + "model: {name: mlp, width: [3]}", [":4", "model", "'widths'"]),
        (GOOD + "model: resnet18", [":4", "model", "resnet18", "images"]),
        (GOOD + "model: 7", [":4", "model", "7"]),
        (GOOD + "calibrators: [temperatur]", [":4", "calibrators.0", "did you mean 'temperature'"]),
        (GOOD + "protocol: honesty", [":4", "protocol", "honest"]),
        (GOOD + "calibrators: [temperature, temperature]", [":4", "calibrators.1", "twice"]),
        (GOOD + "calibrators: ['json:dumps']", ["calibrators.0", "not a subclass of Calibrator"]),
        (GOOD + "search: {objective: refinement}", ["search.objective", "stop_on: refinement"]),
        (GOOD + "training: {patience: 3, evaluate_every: 5}", ["training", "patience 3"]),
        (GOOD + "training: {epochs: true}", [":4", "training.epochs", "True", "integer"]),
        (GOOD + "training: {batch_size: '64'}", ["training.batch_size", "'64'", "'full'"]),
        (GOOD + "training: {epochs: 100000000}", ["training.epochs", "at most 10000000"]),
        (GOOD + "confirm_seeds: '3'", [":4", "confirm_seeds", "'3'", "integer"]),
        (GOOD + "protocol: {name: a, share_validation: 1}", ["protocol.share_validation", "1"]),
        (GOOD + "search: {sampler: grid, time: 10m}", ["search.time", "600", "leave one"]),
        (GOOD + "search: {time: 10 minutes}", ["search.time", "'10 minutes'", "10m"]),
        (GOOD + "search: {sampler: gp, trials: 400}", ["search.trials", "400", "300", "tpe"]),
        (GOOD + "search: {objective: [ece, ece]}", ["search.objective.1", "'ece'", "twice"]),
        (GOOD + "search: {objective: [error, ec]}", ["search.objective.1", "'ec'", "'ece'"]),
        (GOOD + "search: {objective: aurc}", ["'aurc'", "not measured while", "nll, brier"]),
        (
            GOOD + "search: {objective: {metric: accuracy, direction: minimize}}",
            ["search.objective.0.direction", "'minimize'", "'accuracy'", "write 'maximize'"],
        ),
        (
            GOOD + "search: {objective: [error, ece], sampler: cmaes}",
            ["search.sampler", "'cmaes'", "one objective"],
        ),
        (
            GOOD + "search: {objective: [error, ece]}\nscheduler: asha",
            [":5", "scheduler", "'asha' needs one objective", "has 2"],
        ),
        (
            GOOD + "training: {epochs: 20}\nscheduler: {name: asha, grace: 20}",
            [":5", "scheduler.grace", "found 20", "'standard'", "20 epochs"],
        ),
        (GOOD + "scheduler: hyperband", [":4", "scheduler.name", "'hyperband'", "'median'"]),
        (GOOD + "resources: {gpu: 1.5}", ["resources.gpu", "1.5", "one device"]),
        (GOOD + "resources: {cpu: 1.0e+9}", ["resources.cpu", "less than or equal to 10000"]),
        (GOOD + "tracking: mlruns", [":4", "tracking.uri", "'mlruns'", "sqlite:///"]),
        (GOOD + "tracking: {uri: 'file:///tmp/x'}", ["tracking.uri", "http://"]),
        (GOOD + "tracking: {experiment: ''}", ["tracking.experiment", "at least 1"]),
        (GOOD + "time_limit: -5", [":4", "time_limit", "-5", "greater than 0"]),
        (GOOD + "retries: 1000", [":4", "retries", "1000", "less than or equal to 100"]),
        (GOOD + "model: {name: mlp, widths: [65536, 65536]}", ["model", "parameters", "possible"]),
        (GOOD + "model: {name: wide_resnet, depth: 600004}", ["model", "600004", "at most"]),
        (GOOD + "seed: 2001-12-14", [":4", "seed", "the date '2001-12-14'"]),
        (GOOD + "calibrators: [temperature, 3]", [":4", "calibrators.1: found 3", "string"]),
        (
            GOOD + "table: {title: t, metrics: [ece], rows: {CE: 3}}",
            ["table.rows.CE: found 3", "string"],
        ),
        (GOOD + "1: a", [":4: 1", "not a text", "quotes"]),
        (GOOD.replace("[standard]", "{focal: {gamma: 1, grid: [{lr: 1}]}}"), ["focal.grid", "tpe"]),
        (
            GOOD.replace("[standard]", "{focal: {try_first: [{gamma: 1}]}}")
            + "search: {sampler: grid}",
            ["methods.focal.try_first", "sampler: grid", "leave it out"],
        ),
        (
            GOOD.replace("[standard]", "{focal: {try_first: [{gamma: 1}, {gamma: 9}]}}"),
            ["methods.focal.try_first.1", "'gamma' = 9", "[0, 5]"],
        ),
        (
            GOOD.replace("[standard]", "{focal: {grid: [{gamma: 1}, {gamma: 1}]}}")
            + "search: {sampler: grid}",
            ["methods.focal.grid.1", "twice"],
        ),
        (
            GOOD.replace("[standard]", "{focal: {gamma: {uniform: [0, 1], when: {lrr: 1}}}}"),
            ["methods.focal.gamma", "'lr'"],
        ),
        (
            GOOD.replace("[standard]", "\n- standard\n- focal:\n    gamma: -1"),
            [":6", "methods.focal.gamma", "-1"],
        ),
        (
            GOOD.replace("[standard]", "{focal: {training: {epoch: 3}}}"),
            ["methods.focal.training.epoch", "did you mean 'epochs'"],
        ),
        (GOOD + "training: {augmentation: crop_flip}", ["training.augmentation", "no images"]),
        (
            GOOD.replace("[standard]", "{ls: {method: label_smoothing, category_embedding: 4}}"),
            ["methods.ls.category_embedding", "'blobs-1.7' has no columns"],
        ),
        (
            GOOD.replace("[standard]", "{standard: {input_bins: 4}}"),
            ["input_bins", "numeric_inputs: piecewise"],
        ),
        (GOOD + "search: {sampler: grid, resolution: 1000}", ["methods.standard", "1000000"]),
        (GOOD.replace("[standard]", "['json:dumps']"), ["json:dumps", "not a class"]),
        (GOOD.replace("[standard]", "{focal: {gamma: true}}"), ["methods.focal.gamma", "True"]),
        (GOOD.replace("[standard]", "{focal: {gamma: '2'}}"), ["methods.focal.gamma", "'2'"]),
        (GOOD.replace("[blobs-1.7]", "&d [*d]"), ["nested too deeply"]),
        (
            "name: a\ndatasets:\n- {name: table, path: gone.csv, target: y}\nmethods: [standard]",
            [":3", "datasets.0", "gone.csv"],
        ),
        ("name: a\ndatasets: [table]\nmethods: [standard]", ["datasets.0", "path", "required"]),
    ],
)
def test_a_wrong_spec_names_file_line_field_value_and_remedy(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    message = complaint(tmp_path, text)
    assert message.startswith(str(tmp_path / "sweep.yaml"))
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_a_users_broken_module_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_syntax.py").write_text("def f(:")
    (tmp_path / "raising.py").write_text("def points(): return {}['inputs']")
    message = complaint(tmp_path, GOOD.replace("[standard]", "['broken_syntax:Mine']"))
    assert "SyntaxError" in message
    message = complaint(tmp_path, GOOD.replace("[blobs-1.7]", "['raising:points']"))
    assert "datasets.0: KeyError: 'inputs'" in message


def test_a_hyperparameter_called_like_a_key_of_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "gridded.py").write_text(
        "from calibration.methods import MethodHyperparameters\n"
        "from calibration.methods.standard import Standard\n"
        "class Hyperparameters(MethodHyperparameters):\n    grid: float = 1.0\n"
        "class Gridded(Standard):\n    Hyperparameters = Hyperparameters\n"
    )
    message = complaint(tmp_path, GOOD.replace("[standard]", "['gridded:Gridded']"))
    assert "methods.gridded:Gridded: " in message
    assert "hyperparameter 'grid'" in message


def test_scientific_numbers_and_short_forms_mean_what_they_look_like(tmp_path: Path) -> None:
    text = GOOD.replace("[standard]", "{focal: {lr: 1e-3, gamma: {uniform: [0, 2e0]}}}")
    text += "scheduler: asha\ntracking: http://127.0.0.1:1\nsearch: {time: 2h, objective: accuracy}"
    spec = load_spec(written(tmp_path, text)).spec
    assert spec.space("focal").fixed == {"lr": 0.001}
    assert spec.space("focal").searched["gamma"] == Uniform(0.0, 2.0)
    assert spec.scheduler.name == "asha"
    assert spec.tracking.uri == "http://127.0.0.1:1"
    assert spec.search.time == 7200
    assert spec.search.limit is None
    assert spec.search.objective[0].direction == "maximize"


def test_rows_bring_their_own_points_and_conditions(tmp_path: Path) -> None:
    text = """\
name: points
datasets: [blobs-1.7]
methods:
  dual_focal: {form: [dfl, two_term], gamma2: {uniform: [0, 3], when: {form: two_term}},
               try_first: [{form: dfl, lr: 0.01}]}
"""
    space = load_spec(written(tmp_path, text)).spec.space("dual_focal")
    assert space.conditions == {"gamma2": {"form": ("two_term",)}}
    assert space.first == ({"form": "dfl", "lr": 0.01},)
    listed = GOOD.replace("[standard]", "{focal: {grid: [{gamma: 1}, {gamma: 2, lr: 0.1}]}}")
    listed += "search: {sampler: grid}"
    space = load_spec(written(tmp_path, listed)).spec.space("focal")
    assert space.grid == ({"gamma": 1}, {"gamma": 2, "lr": 0.1})


def test_a_stored_copy_finds_its_data_from_where_the_original_was(tmp_path: Path) -> None:
    origin, elsewhere = tmp_path / "origin", tmp_path / "elsewhere"
    origin.mkdir()
    elsewhere.mkdir()
    rows = "\n".join(f"{i / 50},{'yes' if i % 2 else 'no'}" for i in range(50))
    (origin / "my.csv").write_text(f"x,label\n{rows}\n")
    text = "name: own\ndatasets: [{name: table, path: my.csv, target: label}]\nmethods: [standard]"
    copied = written(elsewhere, text)
    with pytest.raises(SpecError, match=r"my\.csv"):
        load_spec(copied)
    assert list(read_spec(text, copied, origin).datasets) == ["my"]


def test_what_was_written_is_kept_apart_from_defaults(tmp_path: Path) -> None:
    loaded = load_spec(written(tmp_path, GOOD + "x-note: 2001-12-14\nseed: 3"))
    assert loaded.written == {
        "name": "small",
        "datasets": ["blobs-1.7"],
        "methods": ["standard"],
        "seed": 3,
    }


def test_a_missing_file_brings_the_nearest_name(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    with pytest.raises(SpecError, match=r"no such file; did you mean .*sweep\.yaml"):
        load_spec(tmp_path / "sweeps.yaml")


@pytest.mark.slow
def test_checking_exits_2_without_a_traceback_and_writes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + "training: {epochs: -4}")
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "sweeps.cli", "check", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "training.epochs" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("path", ready_specs(), ids=lambda p: p.stem)
def test_every_ready_spec_is_valid(path: Path) -> None:
    try:
        name = load_spec(path).spec.name
    except SpecError as error:
        # Public archives need not be here; other tests try their specs on made-up ones.
        name = path.stem if "datasets.0: " in str(error) and "not found in" in str(error) else ""
    assert name == path.stem
