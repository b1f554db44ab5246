"""Shared by the models of a spec: strictness, described fields, durations."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

# "12" and true are not numbers, and 12.0 is not a whole number.
STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


def about(description: str, unit: str = "", **bounds: Any) -> Any:
    """A field's bounds, meaning and unit."""
    return Field(
        description=description, json_schema_extra={"unit": unit} if unit else None, **bounds
    )


def seconds(written: Any) -> Any:
    """Seconds from ``90``, ``"90s"``, ``"10m"``, ``"2h"`` or ``"1d"``."""
    if not isinstance(written, str):
        return written
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    number, unit = written[:-1], written[-1:]
    try:
        return float(number) * units[unit]
    except (KeyError, ValueError):
        raise ValueError("write seconds, or a number with its unit: 90s, 10m, 2h, 1d") from None


_DurationText = Annotated[str, Field(pattern=r"^[0-9.]+[smhd]$")]
Duration = Annotated[
    float,
    Field(gt=0, le=1e9),
    BeforeValidator(
        seconds, json_schema_input_type=Annotated[float, Field(gt=0, le=1e9)] | _DurationText
    ),
]
