"""A whole sweep, in order: plan, train, confirm, record, report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console

from sweeps.plan import Plan
from sweeps.progress import Progress
from sweeps.report.results import failed_maps
from sweeps.report.write import write_report
from sweeps.spec import LoadedSpec
from sweeps.store import Store, write_atomically
from sweeps.tracking import Recorder, default_uri
from sweeps.tuning import train


@dataclass(frozen=True)
class Outcome:
    """What a finished sweep leaves behind."""

    plan: Plan
    directory: Path
    leaderboard: pd.DataFrame
    tracking_uri: str
    unpublished: int
    tracking_error: str
    trained: int
    failed_maps: dict[str, str]
    table: pd.DataFrame | None


def run_sweep(
    loaded: LoadedSpec,
    store: Store,
    *,
    console: Console,
    tracking_uri: str | None = None,
    address: str | None = None,
) -> Outcome:
    """Run or continue a sweep until every trial has its record, then report.

    Raises ``StoreError`` when the store cannot be written and ``ValueError`` when no trial
    fits the machine.
    """
    # The workers have the cores: more threads here would only fight with them.
    torch.set_num_threads(1)
    directory = store.sweep_directory(loaded.spec.name)
    write_atomically(directory / "spec.yaml", loaded.text.encode())
    plan = Plan(loaded, store)
    uri = tracking_uri or default_uri(store)
    recorder = Recorder(uri, plan, store)
    plan.on_done = recorder.submit
    plan.replay()
    with Progress(plan, console) as progress:
        train(plan, store, address=address, on_event=progress.update)
    written = write_report(plan, store)
    unpublished = recorder.close(directory, written.summary)
    return Outcome(
        plan,
        directory,
        written.leaderboard,
        uri,
        unpublished,
        recorder.error,
        trained=plan.trained,
        failed_maps=failed_maps(plan, store),
        table=written.table,
    )
