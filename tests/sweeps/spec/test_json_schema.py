"""The JSON Schema of specs: valid itself, true to the bundled specs, and no pushover."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from calibration.calibrators import CALIBRATORS
from calibration.data import DATASETS
from calibration.learners import learner, learner_names
from calibration.models import MODELS
from sweeps.search import SAMPLERS
from sweeps.search.config import Scheduler
from sweeps.spec.json_schema import json_schema
from sweeps.spec.schema import ROW_KEYS, Spec
from sweeps.specs import ready_specs

GOOD: dict[str, Any] = {"name": "a", "datasets": ["iris"], "methods": ["standard"]}


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema())


def complaints(**changes: Any) -> list[str]:
    errors = validator().iter_errors(GOOD | changes)
    return [error.message for error in errors]


def test_the_meta_schema_accepts_it() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")


@pytest.mark.parametrize("path", ready_specs(), ids=lambda p: p.stem)
def test_every_ready_spec_fits(path: Path) -> None:
    validator().validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "change",
    [
        {"x-anchors": {"any": [1, None]}},
        {"methods": "all"},
        {"search": {"sampler": "my_package.samplers:Mine"}},
        {"methods": ["standard", {"focal": {"gamma": [1, 2]}}, "my_package.methods:Mine"]},
        {"methods": {"standard": None, "my_package.methods:Mine": {"any_hyperparameter": 3}}},
        {"methods": {"Focal (3)": {"method": "focal", "gamma": 3, "training": {"epochs": 3}}}},
        {"methods": {"focal": {"method": "label_smoothing", "epsilon": 0.1}}},
        {"methods": {"focal": {"gamma": {"uniform": [0, 3], "when": {"lr": [0.1, 0.2]}}}}},
        {"methods": {"focal": {"lr": {"loguniform": [0.001, 0.1]}, "gamma": {"choice": [1, 2]}}}},
        {"methods": {"bo4sc": {"inner_steps": {"integer": [1, 9], "log": True}}}},
        {"methods": {"focal": {"grid": [{"gamma": 1, "lr": 0.1}]}}},
        {"methods": {"focal": {"try_first": [{"gamma": 1.5}]}}},
        {"datasets": [{"name": "table", "path": "my.csv", "target": "y"}, "mine:load"]},
        {"datasets": [{"name": "cifar10", "otherwise": "digits"}, {"name": "m:load", "any": 1}]},
        {"model": "my_package.models:Net"},
        {"model": {"name": "mlp", "widths": [8]}},
        {"protocol": "bo4sc"},
        {"protocol": "nested"},
        {"protocol": {"name": "mine", "validation": 0.2, "choice": 100}},
        {"protocol": {"name": "mine", "validation": 0.2}},
        {"calibrators": "all"},
        {"calibrators": ["temperature", "my_package.maps:Mine"]},
        {"search": {"time": "10m", "objective": ["error", {"metric": "ece"}], "trials": None}},
        {"search": {"time": 90.5, "objective": "accuracy"}, "time_limit": "1h"},
        {"scheduler": "asha", "tracking": "http://127.0.0.1:5000"},
        {"scheduler": {"name": "median", "grace": 3}, "tracking": {"experiment": "mine"}},
        {"training": {"batch_size": "full", "milestones": [0.5]}, "table": None},
    ],
    ids=str,
)
def test_what_specs_may_say(change: dict[str, Any]) -> None:
    assert complaints(**change) == []


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 3},
        {"name": "../up"},
        {"name": 3},
        {"datasets": []},
        {"datasets": ["no_such_dataset"]},
        {"datasets": ["table"]},
        {"datasets": [{"name": "blobs-1.7", "point": 100}]},
        {"datasets": [{"name": "blobs-1.7", "points": "many"}]},
        {"datasets": [{"points": 100}]},
        {"model": "mlpp"},
        {"model": {"name": "mlp", "width": [8]}},
        {"methods": "some"},
        {"methods": []},
        {"methods": {}},
        {"methods": ["standrad"]},
        {"methods": [{"focal": {}, "standard": {}}]},
        {"methods": {"focal": {"gama": 1}}},
        {"methods": {"focal": {"gamma": -1}}},
        {"methods": {"focal": {"gamma": "2"}}},
        {"methods": {"focal": {"gamma": {"uniform": [1]}}}},
        {"methods": {"focal": {"gamma": {"uniform": [0, 500]}}}},
        {"methods": {"focal": {"gamma": {"normal": [0, 1]}}}},
        {"methods": {"focal": {"gamma": {"uniform": [0, 1], "when": 3}}}},
        {"methods": {"bo4sc": {"inner_steps": {"uniform": [1, 9]}}}},
        {"methods": {"Focal (3)": {"gamma": 3}}},
        {"methods": {"Focal (3)": {"method": "focal", "gama": 3}}},
        {"methods": {"focal": {"training": {"epoch": 3}}}},
        {"methods": {"focal": {"try_first": [{"gama": 1}]}}},
        {"protocol": "honesty"},
        {"training": {"epochs": 0}},
        {"training": {"epochs": "10"}},
        {"search": {"sampler": "tpa"}},
        {"search": {"time": "10 minutes"}},
        {"search": {"objective": "ecee"}},
        {"search": {"objective": []}},
        {"scheduler": "hyperband"},
        {"scheduler": {"name": "asha", "patience": 3}},
        {"confirm_seeds": 0},
        {"calibrators": ["temperatur"]},
        {"calibrators": "slow"},
        {"resources": {"gpu": -1}},
        {"tracking": {"url": "http://127.0.0.1:5000"}},
        {"table": {"title": "t", "rows": {"CE": "standard"}, "metrics": ["ecee"]}},
    ],
    ids=str,
)
def test_what_is_wrong_is_told_before_anything_runs(change: dict[str, Any]) -> None:
    assert complaints() == []
    assert complaints(**change) != []


def test_a_missing_name_is_told() -> None:
    without = copy.deepcopy(GOOD)
    del without["name"]
    assert not validator().is_valid(without)


def properties(schema: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        for key, inner in schema.items():
            if key == "properties":
                yield from ((f"{at}.{name}", field) for name, field in inner.items())
            yield from properties(inner, f"{at}.{key}")
    elif isinstance(schema, list):
        for inner in schema:
            yield from properties(inner, at)


def test_every_field_says_what_it_is() -> None:
    schema = json_schema()
    defined = schema["$defs"]

    def described(field: dict[str, Any]) -> bool:
        referred = field.get("$ref", "").removeprefix("#/$defs/")
        told = field.get("description") or defined.get(referred, {}).get("description")
        # The values in a listed point are those of a hyperparameter, which is described.
        return bool(told) or referred.startswith("value.")

    forms_of_a_domain = {"choice", "integer", "uniform", "loguniform"}
    conditions = {"name", "method"}  # of an "if"
    silent = {at.rpartition(".")[2] for at, field in properties(schema) if not described(field)}
    assert silent <= forms_of_a_domain | conditions


def test_units_and_defaults_are_told() -> None:
    fields = json_schema()["properties"]
    definitions = json_schema()["$defs"]
    assert definitions["SearchConfig"]["properties"]["time"]["unit"] == "seconds"
    assert definitions["TrainingConfig"]["properties"]["epochs"]["unit"] == "epochs"
    assert definitions["TrainingConfig"]["properties"]["epochs"]["default"] == 100
    assert definitions["hyperparameter.FocalHyperparameters.gamma"]["default"] == 2.0
    assert (
        "uniform: [0, 5]" in definitions["hyperparameter.FocalHyperparameters.gamma"]["description"]
    )
    assert fields["confirm_seeds"]["default"] == 5
    assert set(fields) == set(Spec.model_fields)


def test_everything_that_is_registered_is_offered() -> None:
    schema = json_schema()
    rows = schema["$defs"]["rows"]["properties"]
    assert set(rows) == set(learner_names())
    for name in learner_names():
        hyperparameters = schema["$defs"][f"method.{name}"]["properties"]
        assert set(hyperparameters) == {*learner(name).Hyperparameters.model_fields, *ROW_KEYS}
    offered = str(schema)
    for registry in (DATASETS, MODELS, CALIBRATORS, SAMPLERS):
        missing = [n for n in registry if repr(n) not in offered and f"^{n}" not in offered]
        assert missing == []
    scheduler = schema["$defs"]["SchedulerConfig"]["properties"]["name"]["enum"]
    assert set(scheduler) == set(get_args(Scheduler))
