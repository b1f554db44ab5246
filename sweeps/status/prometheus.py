"""A snapshot in Prometheus's text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_GAUGES = {
    "trials": "Trials of the sweep by state; total is how many it will have.",
    "cell_trials": "Trials of one row on one dataset by state.",
    "validation_nll": "Mean validation NLL of the confirm trials so far.",
    "seconds": "Seconds since this driver started or resumed the sweep.",
    "event_age_seconds": "Seconds since a trial last ended, or since the sweep began.",
    "resident_bytes": "Memory of the driver's process.",
}


def exposition(status: Mapping[str, Any]) -> str:
    """The text: gauges only, since a resumed sweep continues its counts."""
    sweep = {"sweep": status["sweep"]}
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {name: [] for name in _GAUGES}
    for state, value in status.get("trials", {}).items():
        samples["trials"].append((sweep | {"state": state}, value))
    for cell in status.get("cells", ()):
        where = sweep | {"dataset": cell["dataset"], "row": cell["row"]}
        for state in ("total", "done", "running", "failed"):
            samples["cell_trials"].append((where | {"state": state}, cell[state]))
    for line in status.get("leaderboard", ()):
        if line["nll"] is not None:
            names = {name: line[name] for name in ("dataset", "row", "calibrator")}
            samples["validation_nll"].append((sweep | names, line["nll"]))
    for name in ("seconds", "event_age_seconds", "resident_bytes"):
        if status.get(name) is not None:
            samples[name].append((sweep, status[name]))
    return "".join(_lines(samples))


def _lines(samples: Mapping[str, list[tuple[Mapping[str, str], float]]]) -> Iterator[str]:
    for name, found in samples.items():
        if found:
            yield f"# HELP calsweep_{name} {_GAUGES[name]}\n# TYPE calsweep_{name} gauge\n"
        for labels, value in found:
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"calsweep_{name}{{{inner}}} {float(value)!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
