"""The JSON Schema of specs (draft 2020-12), with which editors complete and check them.

It contains what is registered here and now: datasets, models, methods with their hyperparameters,
calibrators, samplers. What only a loaded spec can show (files, conditions between fields) is left
to ``calsweep check``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from calibration.calibrators import CALIBRATORS
from calibration.data import DATASETS, PROTOCOLS, Protocol
from calibration.learners import learner, learner_names
from calibration.models import MODELS
from calibration.optimisers import OPTIMISERS
from calibration.registry import Registry
from calibration.training_config import TrainingConfig
from sweeps.search import SAMPLERS
from sweeps.spec.descriptions import declaring, note, plain
from sweeps.spec.hyperparameter_schema import WHEN, hyperparameter_schema, value_schema
from sweeps.spec.meaning import compared_metrics, table_metrics
from sweeps.spec.schema import Spec

_Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_IMPORT_PATH = {
    "type": "string",
    "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
    "description": "something of your own, as package.module:Name",
}


def json_schema() -> _Schema:
    """The schema of a spec's YAML, for ``yaml-language-server`` and similar tools."""
    schema = Spec.model_json_schema()
    definitions: _Schema = schema["$defs"]
    for model in (TrainingConfig, Protocol):
        _describe(definitions[model.__name__], model)
    _say(definitions["TrainingConfig"]["properties"]["optimiser"], _names(OPTIMISERS))
    definitions |= {f"method.{name}": _row_of(name, definitions) for name in learner_names()}
    definitions["method"] = _names(learner_names())
    definitions["when"] = WHEN
    definitions["row"] = _any_row()
    definitions["rows"] = _rows()
    fields = schema["properties"]
    fields["datasets"]["items"] = _choice(DATASETS, {"otherwise": _otherwise()})
    _say(fields["model"], _choice(MODELS, {}), default="mlp")
    _say(fields["methods"], _methods())
    _say(fields["protocol"], _protocol(), default="honest")
    _say(fields["calibrators"], _calibrators())
    _say(definitions["SearchConfig"]["properties"]["sampler"], _names(SAMPLERS))
    definitions["PublishedTable"]["properties"]["metrics"]["items"] = {"enum": table_metrics()}
    fields["equivalence"]["propertyNames"] = {"enum": compared_metrics()}
    for name, field in fields.items():
        if "$ref" in field or name in ("scheduler", "tracking"):
            field.pop("default", None)  # the fields inside have their own
    return {"$schema": DIALECT, **schema} | {
        "title": "A calsweep sweep",
        # Specs may have keys of their own, as places for anchors.
        "patternProperties": {"^x-": {"description": "your own, e.g. for YAML anchors"}},
    }


def _say(field: _Schema, form: _Schema, **more: Any) -> None:
    """Replace pydantic's schema of a field's form, keeping its title, description and default."""
    kept = {key: field[key] for key in ("title", "description", "default") if key in field}
    field.clear()
    field.update(form | kept | more)


def _describe(schema: _Schema, model: type[BaseModel]) -> None:
    for name, field in schema.setdefault("properties", {}).items():
        about = note(model, name)
        field["description"] = about.text
        if about.unit:
            field["unit"] = about.unit


def _names(names: Iterable[str]) -> _Schema:
    known = sorted(names)
    single = [name for name in known if not name.endswith(":")]
    families = [_is_named(name) for name in known if name.endswith(":")]
    return {"anyOf": [{"enum": single}, *families, _IMPORT_PATH]}


def _is_named(name: str) -> _Schema:
    """A thing's name, or that of any member of a family such as ``timm:``."""
    if name.endswith(":"):
        return {"type": "string", "pattern": f"^{name}."}
    return {"const": name}


def _choice(registry: Registry[Any], further: _Schema) -> _Schema:
    """A name, or a mapping of the name and the options that belong to it."""
    by_name = []
    for name in registry:
        options = registry[name].model_json_schema()
        _describe(options, registry[name])
        properties = options["properties"] | {"name": _is_named(name)} | further
        then = {
            "description": plain(registry[name].__doc__),
            "properties": properties,
            "required": [each for each in options.get("required", []) if each != "name"],
            "additionalProperties": False,
        }
        by_name.append({"if": {"properties": {"name": _is_named(name)}}, "then": then})
    mapping = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _names(registry)},
        "allOf": by_name,
    }
    alone = [name for name in registry if not registry[name].model_json_schema().get("required")]
    return {"anyOf": [*_names(alone)["anyOf"], mapping]}


def _otherwise() -> _Schema:
    return {"enum": sorted(DATASETS), "description": "the dataset to use if this one is absent"}


def _protocol() -> _Schema:
    return {"anyOf": [{"enum": sorted(PROTOCOLS)}, _reference("Protocol")]}


def _calibrators() -> _Schema:
    listed = {"type": "array", "items": _names(CALIBRATORS), "uniqueItems": True}
    return {"anyOf": [{"enum": ["fast", "all"]}, listed]}


def _row_of(method: str, definitions: _Schema) -> _Schema:
    """A row whose method is known, with its hyperparameters; new ones join ``definitions``."""
    kind = learner(method).Hyperparameters
    hyperparameters: _Schema = {}
    values: _Schema = {}
    for name in kind.model_fields:
        # Hyperparameters that methods inherit are defined once.
        key = f"{declaring(kind, name).__name__}.{name}"
        if f"hyperparameter.{key}" not in definitions:
            definitions[f"value.{key}"] = value_schema(kind, name)
            definitions[f"hyperparameter.{key}"] = hyperparameter_schema(
                kind, name, _reference(f"value.{key}")
            )
        hyperparameters[name] = _reference(f"hyperparameter.{key}")
        values[name] = _reference(f"value.{key}")
    point = {"type": "object", "properties": values, "additionalProperties": False}
    return {
        "type": ["object", "null"],
        "description": learner(method).description,
        "properties": _own(point) | hyperparameters,
        "additionalProperties": False,
    }


def _reference(name: str) -> _Schema:
    return {"$ref": f"#/$defs/{name}"}


def _own(point: Mapping[str, Any]) -> _Schema:
    """What every row may contain besides its hyperparameters."""
    points = {"type": "array", "items": point}
    return {
        "method": _reference("method")
        | {"description": "how the row is trained; by default the method of its name"},
        "training": _reference("TrainingConfig")
        | {"description": "training settings of this row alone"},
        "grid": points | {"description": "the points of the grid, instead of all combinations"},
        "try_first": points | {"description": "known-good points to begin the search with"},
    }


def _any_row() -> _Schema:
    """A row with ``method:``, whose hyperparameters are those of that method."""
    by_method = [
        {
            "if": {"properties": {"method": {"const": name}}, "required": ["method"]},
            "then": _reference(f"method.{name}"),
        }
        for name in learner_names()
    ]
    return {
        "type": ["object", "null"],
        "properties": _own({"type": "object"}),
        "allOf": by_method,
    }


def _rows() -> _Schema:
    """Rows by name: a method's own name needs no ``method:``, any other name does."""
    row = _reference("row")
    named = {
        name: {
            "description": learner(name).description,
            "if": {"type": "object", "required": ["method"]},
            "then": row,
            "else": _reference(f"method.{name}"),
        }
        for name in learner_names()
    }
    return {
        "type": "object",
        "properties": named,
        "patternProperties": {_IMPORT_PATH["pattern"]: row},
        "additionalProperties": {"allOf": [row, {"type": "object", "required": ["method"]}]},
    }


def _methods() -> _Schema:
    rows = _reference("rows")
    one = {"allOf": [rows, {"minProperties": 1, "maxProperties": 1}]}
    listed = {
        "type": "array",
        "items": {"anyOf": [_reference("method"), one]},
        "minItems": 1,
        "maxItems": 1000,
    }
    mapping = {"allOf": [rows, {"minProperties": 1, "maxProperties": 1000}]}
    return {"anyOf": [{"const": "all"}, listed, mapping]}
