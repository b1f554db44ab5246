"""The templates of the pages: values are shown verbatim, never interpreted as markup."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from calibration.text import visible
from sweeps.report.wording import count, p_value

NOTHING = Markup()


def rendered(template: str, /, **values: Any) -> Markup:
    """``TEMPLATE.html.j2`` filled in. Raises ``UndefinedError`` if it lacks a value."""
    return Markup(_environment().get_template(f"{template}.html.j2").render(values))


def macro(template: str, name: str) -> Callable[..., Markup]:
    """One macro of a template, to be called with its values."""
    made: Callable[..., Markup] = getattr(_macros(template), name)
    return made


def _shown(value: object) -> str:
    """The text without control characters; markup consists of such texts already."""
    return value if isinstance(value, Markup) else visible(str(value))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("sweeps.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"count": count, "p_value": p_value}
    return environment


@cache
def _macros(template: str) -> object:
    return _environment().get_template(f"{template}.html.j2").module
