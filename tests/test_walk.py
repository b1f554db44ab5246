"""From a spec to its report: every value that one module hands to the next."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
WALK = [
    ("spec/schema", "spec/loading", "Spec"),  # fully validated, with line numbers
    ("spec/loading", "runner", "LoadedSpec"),  # the spec with its datasets
    ("runner", "engine/plan", "LoadedSpec"),  # and the store: the plan is rebuilt
    ("engine/plan", "engine/cell", "LoadedSpec"),  # one cell for each row on each dataset
    ("search/space", "search/study", "Configuration"),  # a suggestion
    ("search/study", "engine/cell", "Study"),  # one search for each cell
    ("engine/identity", "engine/cell", "TrialConfig"),  # what the key hashes
    ("engine/cell", "engine/plan", "PlannedTrial"),  # key and configuration
    ("engine/plan", "ray_backend/searcher", "PlannedTrial"),  # the next to train
    ("ray_backend/searcher", "ray_backend/trainable", "Assignment"),  # sent to a worker
    ("ray_backend/trainable", "engine/trial", "TrialRun"),  # one attempt
    ("engine/trial", "calibration/training.py", "TrainingRun"),  # epochs and checkpoints
    ("engine/trial", "store/trial_files", "TrialOutcome"),  # curve, network, predictions
    ("store/trial_files", "engine/evaluation", "TrialRecord"),  # the same, stored and validated
    ("engine/evaluation", "calibration/evaluation.py", "LabelledLogits"),  # stored predictions
    ("calibration/evaluation.py", "engine/evaluation", "CalibratorEvaluation"),  # metrics
    ("engine/evaluation", "store/trial_files", "EvaluationRecord"),  # stored beside the record
    ("store/trial_files", "engine/plan", "TrialRecord"),  # read once
    ("engine/plan", "sweep", "Plan"),  # everything that was read
    ("sweep", "runner", "records_of"),  # makes SweepRecords
    ("runner", "report/write", "SweepRecords"),
    ("report/write", "analysis/analysis", "SweepRecords"),
    ("analysis/results", "analysis/selection", "Selection"),  # the choices, from one line per seed
    ("analysis/selection", "analysis/analysis", "Selection"),
    ("analysis/analysis", "report/write", "Analysis"),  # recommendation, comparisons, costs
    ("report/gather", "report/page", "Gathered"),  # what is drawn
    ("report/page", "report/section", "ReportContext"),  # given to each section
    ("report/document", "report/page", "PagePart"),  # assembled into report.html
]
"""Giver, taker and value, by modules of ``sweeps`` or, of ``calibration``, by files."""
MOST_HOPS = 30


def known_names(module: str) -> set[str]:
    """What a module defines or imports."""
    path = ROOT / module if module.endswith(".py") else ROOT / "sweeps" / f"{module}.py"
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_both_ends_of_a_hop_know_the_value() -> None:
    unknown = [
        (value, module)
        for giver, taker, value in WALK
        for module in (giver, taker)
        if value not in known_names(module)
    ]
    assert unknown == []


def test_the_walk_is_short_and_as_long_as_the_architecture_says() -> None:
    assert len(WALK) <= MOST_HOPS
    assert f" {len(WALK)} values pass" in (ROOT / "ARCHITECTURE.md").read_text()
