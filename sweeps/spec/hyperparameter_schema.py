"""The JSON Schema of one hyperparameter: a value of its own type, or a domain to search."""

from __future__ import annotations

from typing import Any

from calibration.hyperparameters import Hyperparameters
from sweeps.search.domains import describe
from sweeps.spec.descriptions import note

_Schema = dict[str, Any]

_PLAIN = {"type": ["boolean", "number", "string"]}
WHEN = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {"anyOf": [_PLAIN, {"type": "array", "items": _PLAIN, "minItems": 1}]},
    "description": "searched only while other hyperparameters have these values: "
    "{other_hyperparameter: value or list}",
}


def value_schema(kind: type[Hyperparameters], name: str) -> _Schema:
    """The values that the hyperparameter may have."""
    found: _Schema = dict(kind.model_json_schema()["properties"][name])
    return {key: rule for key, rule in found.items() if key not in ("title", "default")}


def hyperparameter_schema(kind: type[Hyperparameters], name: str, value: _Schema) -> _Schema:
    """A hyperparameter in a spec: a ``value`` or a domain, with its default and meaning.

    Conditions refer to a definition ``when`` that must be ``WHEN``.
    """
    field = kind.model_fields[name]
    domain = kind.domains().get(name)
    searched = f" (searched by default: {describe(domain)})" if domain is not None else ""
    for when, instead in kind.replacements(name):
        searched += f" ({describe(instead)} when {when.other}: {when.value})"
    listed = {"type": "array", "items": value, "minItems": 1, "uniqueItems": True}
    forms = _domains(value_schema(kind, name).get("type"), value, listed)
    schema: _Schema = {
        "title": name,
        "description": note(kind, name).text + searched,
        "anyOf": [value, listed, *forms],
    }
    return schema if field.is_required() else schema | {"default": field.default}


def _domains(kind: Any, value: _Schema, listed: _Schema) -> list[_Schema]:
    forms: dict[str, _Schema] = {"choice": listed}
    bounds = {"type": "array", "items": value, "minItems": 2, "maxItems": 2}
    if kind in ("number", "integer"):
        forms["integer"] = bounds | {"items": {"allOf": [value, {"type": "integer"}]}}
    if kind == "number":
        forms |= {"uniform": bounds, "loguniform": bounds}
    further = {"integer": {"log": {"type": "boolean", "description": "even in the logarithm"}}}
    return [
        {
            "type": "object",
            "required": [form],
            "properties": {form: schema, "when": {"$ref": "#/$defs/when"}} | further.get(form, {}),
            "additionalProperties": False,
        }
        for form, schema in forms.items()
    ]
