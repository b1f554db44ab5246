"""The output of ``calsweep show``: one trial in full, in any state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calibration.learners.estimator import TRAINING_SETTINGS
from calibration.metrics import METRICS, Shown
from calibration.text import count
from sweeps.engine.progress import format_value
from sweeps.errors import UserError
from sweeps.host.console import print_whole, say
from sweeps.report.wording import convergence_note, dagger
from sweeps.store import EvaluationRecord, Store, TrialRecord
from sweeps.store.ensembles import is_ensemble

SHORTEST_PREFIX = 4
CURVE = ("validation/nll", "validation/ece", "validation/error", "train/loss")
BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 48


def find_trial(store: Store, name: str) -> str:
    """The key that starts with ``name``. Raises ``UserError`` if none does, or several do."""
    text = name.strip().lower()
    if len(text) < SHORTEST_PREFIX or not set(text) <= set("0123456789abcdef"):
        raise UserError(
            f"found {name!r}; a trial is named by its key or at least {SHORTEST_PREFIX} of its "
            "first digits (0-9, a-f), which calsweep status SWEEP --trials lists"
        )
    known = {*store.trial_keys(), *(key for _, _, key in store.stopped_trials())}
    matching = sorted(key for key in known if key.startswith(text))
    if not matching:
        raise UserError(f"{store.root}: no trial {name!r}; see calsweep status SWEEP --trials")
    if len(matching) > 1:
        shown = ", ".join(key[:12] for key in matching[:5]) + (", …" if len(matching) > 5 else "")
        raise UserError(f"{name!r} matches {len(matching)} trials: {shown}; write more digits")
    return matching[0]


def print_trial(store: Store, key: str, console: Console) -> None:
    """Print a trial's settings, outcome, curve, metrics and files."""
    record = store.record(key)
    for sweep, study, stopped in store.stopped_trials():
        found = store.stopped(sweep, study, key) if stopped == key else None
        if found is not None:
            say(console, f"sweep {sweep}: {found.reason}")
            record = record or found
    if record is None:
        _print_running(store, key, console)
        return
    _print_settings(key, record.config, console)
    say(console, *_outcome_lines(record))
    _print_curve(record.curve, console)
    for tag in [] if record.status != "done" else store.evaluation_tags(record):
        print_whole(console, _calibrator_table(_own(store.evaluations(record, tag)), tag))
    if record.traceback:
        say(console, record.traceback.rstrip())
    versions = ", ".join(f"{name} {v}" for name, v in record.environment.items() if v)
    say(console, f"versions   {versions}", f"files      {store.trial_location(key)}")


def _own(evaluations: Mapping[str, EvaluationRecord]) -> dict[str, EvaluationRecord]:
    """The evaluations without those of ensembles that the network belongs to."""
    return {name: each for name, each in evaluations.items() if not is_ensemble(name)}


def _print_running(store: Store, key: str, console: Console) -> None:
    live = store.live(key)
    say(console, f"trial      {key}")
    if not live or not live.get("curve"):
        say(console, "no record and no checkpoint yet: it is waiting or has just started")
        return
    at = datetime.fromtimestamp(live["times"][-1], UTC)
    epoch = live["curve"][-1]["epoch"]
    say(console, f"no record yet; its last checkpoint: epoch {epoch}, {at:%Y-%m-%d %H:%M:%S} UTC")
    _print_curve(live["curve"], console)


def _print_settings(key: str, config: Mapping[str, Any], console: Console) -> None:
    hyperparameters = " ".join(
        f"{n}={format_value(v)}" for n, v in config["hyperparameters"].items()
    )
    model = config["model"]
    training = " ".join(
        f"{n}={format_value(v)}"
        for n, v in config["training"].items()
        if model is not None or n in TRAINING_SETTINGS
    )
    network = (
        [] if model is None else [model["name"], *(f"{n}={v}" for n, v in model["options"].items())]
    )
    say(
        console,
        f"trial      {key}",
        f"what       {config['method']} on {config['dataset_name']}, {config['phase']} phase, "
        f"seed {config['seed']}",
        f"settings   {hyperparameters}",
        f"training   {training}",
        *([f"model      {' '.join(network)}"] if network else []),
        f"data       {config['fingerprint']}",
    )


def _outcome_lines(record: TrialRecord) -> list[str]:
    reason = f": {record.reason}" if record.reason else ""
    lines = [f"status     {record.status}{reason}"]
    if record.epochs:
        # An estimator has rounds, and its parameters are not counted.
        unit = "epoch" if record.parameters else "round"
        size = f", {record.parameters} parameters" if record.parameters else ""
        company = f", its share of a cohort of {record.company}" if record.company > 1 else ""
        company += f" ({record.apart})" if record.apart else ""
        lines.append(
            f"trained    {count(record.epochs, unit)} in {record.seconds:.2f} s{company}{size}; "
            f"chosen: {unit} {record.best_epoch}"
        )
    if record.validation:
        measured = (f"{name}={value:.4g}" for name, value in record.validation.items())
        lines.append("validation " + " ".join(measured))
    return lines


def _print_curve(curve: Sequence[Mapping[str, Any]], console: Console) -> None:
    for name in CURVE:
        values = [float(row[name]) for row in curve if name in row]
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) > 1:
            ends = f"{finite[0]:.4g} … {finite[-1]:.4g}, minimum {min(finite):.4g}"
            say(console, f"{name:<11}{sparkline(finite)}  {ends}")


def sparkline(values: list[float]) -> str:
    """Numbers as a row of small bars, at most ``_WIDTH`` of them."""
    step = max(1, -(-len(values) // _WIDTH))
    shown = values[::step]
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)


def _calibrator_table(evaluations: Mapping[str, EvaluationRecord], tag: str) -> Table:
    table = Table(
        title=f"test data, {tag.replace('-', ' ')}", title_justify="left", box=None, pad_edge=False
    )
    metrics = METRICS.names(Shown.DETAIL)
    titles = map(METRICS.title, metrics)
    for heading in ("calibrator", *titles, "ECE's floor", "validation NLL"):
        table.add_column(heading, justify="left" if heading == "calibrator" else "right")
    for name, found in evaluations.items():
        if found.failed or found.floor is None:
            table.add_row(Text(name), Text(f"failed: {found.failed}"))
            continue
        values = {metric: found.test.get(metric, math.nan) for metric in metrics}
        cells = [_with_interval(v, found.intervals.get(m)) for m, v in values.items()]
        table.add_row(
            Text(f"{name}{dagger({'converged': found.converged})}"),
            *cells,
            _number(found.floor[0]),
            _number(found.validation.get("nll", math.nan)),
        )
    note = convergence_note(each.converged for each in evaluations.values())
    table.caption, table.caption_justify = note.strip() or None, "left"
    return table


def _with_interval(value: float, interval: tuple[float, float] | None) -> str:
    if interval is None or math.isnan(value):
        return _number(value)
    return f"{value:.4f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"
