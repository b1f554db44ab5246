"""Everything about one method, calibrator, metric, dataset, model or sampler."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

from pydantic import BeforeValidator
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from calibration.hyperparameters import Settings
from calibration.metrics import Metric
from calibration.objectives import OBJECTIVES
from sweeps.cli.listings import describe_domain
from sweeps.host.console import say
from sweeps.spec.descriptions import library_note
from sweeps.spec.settings import as_text

FACTS = {
    "complexity": "complexity",
    "fast": "in 'fast'",
    "keeps_argmax": "keeps the class",
    "conditions": "conditional spaces",
    "several_objectives": "several objectives",
    "most_trials": "at most",
    "version": "version",
}
"""Attributes that a class may declare, and their names in the output."""
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
LABEL = 20
UNSTATED = BeforeValidator(bool).json_schema_input_type
"""What pydantic has there for a validator that does not say what it accepts."""


def print_entry(kind: str, name: str, entry: Any, console: Console) -> None:
    """Print everything about an entry of a registry, from the entry itself."""
    say(console, f"{name} ({kind})")
    description = getattr(entry, "description", "")
    if description:
        console.print(Text(f"\n{description}"))
    for paragraph in paragraphs(_documentation(name, entry)):
        console.print(Text(f"\n{paragraph}"))
    if objective := _objective(entry):
        console.print(Text("\nThe objective:"))
        for paragraph in paragraphs(objective):
            console.print(Text(f"\n{paragraph}"))
    settings = _settings(entry)
    if settings is not None and settings.model_fields:
        console.print()
        console.print(_settings_table(settings))
        for paragraph in _explained(settings, entry):
            console.print(Text(paragraph))
    console.print()
    for fact, value in _facts(entry).items():
        say(console, f"{fact:<{LABEL}}{value}")
    say(console, f"{'source':<{LABEL}}{_source(entry)}")


def paragraphs(documentation: str) -> list[str]:
    """The paragraphs of a docstring, each on one line, as are the items of its lists.

    Examples and indented text, such as equations, keep their lines.
    """
    plain = inspect.cleandoc(documentation).replace("``", "").strip()
    found = []
    for part in re.split(r"\n\s*\n", plain):
        if part.startswith("- "):
            items = re.split(r"\n(?=- )", part)
            found.append("\n".join(" ".join(item.split()) for item in items))
        else:
            found.append(part if re.match(r"\s|>>>", part) else " ".join(part.split()))
    return list(filter(None, found))


def _documentation(name: str, entry: Any) -> str:
    if not isinstance(entry, Metric):
        return str(vars(entry).get("__doc__") or "")
    from calibration import metrics

    # The function that users call has the equation; a plug-in may have its own documentation.
    function = getattr(metrics, name, None)
    if not inspect.isfunction(function):  # a module may have the name
        function = _function(entry)
    return str(getattr(function, "__doc__", None) or "")


def _objective(entry: Any) -> str:
    """The equation of the objective that a method adds to its base loss."""
    name = getattr(entry, "objective", None)
    if not isinstance(name, str) or name not in set(OBJECTIVES):
        return ""
    return str(OBJECTIVES[name].__doc__ or "")


def _settings(entry: Any) -> type[Settings] | None:
    found = getattr(entry, "Hyperparameters", entry)
    return found if isinstance(found, type) and issubclass(found, Settings) else None


def _settings_table(settings: type[Settings]) -> Table:
    domains: Mapping[str, Any] = getattr(settings, "domains", dict)()
    heads = [settings.noun, "default", "values"] + (["searched by default"] if domains else [])
    table = Table(*heads, box=SIMPLE_HEAD, pad_edge=False)
    for name, field in settings.model_fields.items():
        default = "required" if field.is_required() else as_text(field.default)
        searched = [describe_domain(domains[name]) if name in domains else ""] if domains else []
        values = _values(field.annotation, field.metadata)
        # As text: rich may take [text, …] for the name of a style, and print nothing of it.
        table.add_row(*map(Text, (name, default, values, *searched)))
    return table


def _values(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """The type and the bounds of a setting: ``number ≥ 0 ≤ 20``, ``relu | tanh``, ``[text, …]``."""
    metadata = list(metadata)
    for each in metadata:
        if isinstance(each, BeforeValidator) and each.json_schema_input_type is not UNSTATED:
            return _values(each.json_schema_input_type)  # it accepts more forms than it returns
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " | ".join(map(str, parts))
    if origin is Annotated:
        return _values(parts[0], parts[1:])
    if origin in (Union, UnionType):
        return " | ".join(_values(part, metadata) for part in parts if part is not NoneType)
    if origin is tuple:
        return f"[{', '.join('…' if part is ... else _values(part) for part in parts)}]"
    words = {
        float: "number",
        int: "whole number",
        bool: "true | false",
        str: "text",
        Path: "path",
    }
    shown = words.get(annotation) or str(getattr(annotation, "__name__", annotation))
    limits = chain.from_iterable(getattr(each, "metadata", [each]) for each in metadata)
    bounds = [
        f"{sign} {getattr(each, name):g}"
        for each in limits
        for name, sign in BOUNDS.items()
        if hasattr(each, name)
    ]
    return " ".join([shown, *bounds])


def _explained(settings: type[Settings], entry: Any) -> Iterator[str]:
    """The descriptions of a class's settings in its docstring and those of its bases.

    Datasets and models are their own settings: the docstring of ``entry`` stands above.
    """
    for each in settings.__mro__:
        if each is entry:
            continue
        own = vars(each).get("__doc__") or ""
        named = any(f"``{name}``" in own for name in settings.model_fields)
        if named and issubclass(each, Settings):
            yield from paragraphs(own)
    for name, field in settings.model_fields.items():
        about = library_note(settings, name)
        if description := field.description or (about and about.text):
            yield f"{name}: {description}"


def _facts(entry: Any) -> dict[str, str]:
    if isinstance(entry, Metric):
        hidden = {"name", "description", "compute", "resample"}
        fields = [field.name for field in dataclasses.fields(entry) if field.name not in hidden]
        facts = {name: getattr(entry, name) for name in fields}
        facts["interval"] = entry.has_interval
    else:
        facts = {called: getattr(entry, n) for n, called in FACTS.items() if hasattr(entry, n)}
    named = {name.replace("_", " "): value for name, value in facts.items()}
    return {name: _fact(value) for name, value in named.items() if value is not None}


def _fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " … ".join(f"{each:g}" for each in value).replace("inf", "∞").replace("-", "−")
    return value.name.lower() if isinstance(value, Enum) else f"{value}"


def _source(entry: Any) -> str:
    """Where it is defined, as an import path."""
    made = _function(entry) if isinstance(entry, Metric) else entry
    return f"{made.__module__}:{made.__qualname__}"


def _function(metric: Metric) -> Callable[..., Any]:
    if not isinstance(metric.compute, str):
        return metric.compute
    module, _, name = metric.compute.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
