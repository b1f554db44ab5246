"""What to look at if one class has almost all rows: top-label ECE does not see the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calibration.metrics import METRICS
from calibration.metrics.rare import blind_spots, class_shares
from sweeps.analysis import Analysis
from sweeps.analysis.records import SweepRecords
from sweeps.report.wording import listed, number, quoted

INSTEAD = ("rare_class_ece", "auroc", "average_precision", "brier_skill")
"""Metrics that see a rare class; read all but AUROC and Brier skill beside its share."""
_MOST_NAMED = 4


def blind_sentences(
    shares: Sequence[float], names: Sequence[str], chosen: Mapping[str, Any], row: str
) -> str:
    """A warning that top-label ECE is blind or overlooks classes, and what to look at; or "".

    ``shares`` are the classes' shares of the test rows, ``chosen`` holds the metrics of ``row``.
    """
    spots = blind_spots(shares)
    if not spots.blind and not spots.rare:
        return ""
    named = [f"{quoted(names[k])} ({_percent(shares[k])})" for k in spots.rare[:_MOST_NAMED]]
    more = len(spots.rare) - len(named)
    rare = listed([*named, *([f"{more} more"] if more else [])]) if named else "the other classes"
    found = [(name, float(chosen.get(name, math.nan))) for name in INSTEAD]
    values = ", ".join(f"{METRICS.title(name)} {number(v)}" for name, v in found if v == v)
    beside = float(chosen.get("base_rate", math.nan))
    rate = f" (base rate {number(beside)})" if beside == beside else ""
    look = f": {row} has {values}{rate}." if values else "."
    if spots.blind:
        common = max(range(len(shares)), key=lambda k: shares[k])
        return (
            f"Top-label ECE is blind here: {quoted(names[common])} has {_percent(shares[common])} "
            "of the test rows, and always predicting it with confidence 1 gives an ECE of "
            f"{number(spots.bluff)} without any skill. Look at {rare} instead{look}"
        )
    it = "it" if len(spots.rare) == 1 else "them"
    return f"Top-label ECE hardly sees {rare}. Look at {it} separately{look}"


def blindness(sweep: SweepRecords, analysis: Analysis) -> dict[str, str]:
    """The warning for every dataset that needs one, about its chosen row."""
    found = {}
    table = analysis.leaderboard
    for name, dataset in sweep.loaded.datasets.items():
        rows = table if table.empty else table[(table["dataset"] == name) & table["winner"]]
        chosen = {} if rows.empty else {str(k): v for k, v in rows.iloc[0].items()}
        test = dataset.test(sweep.spec.seed + 1)
        shares = class_shares(test.labels, dataset.classes, test.weights)
        text = blind_sentences(shares, dataset.class_names, chosen, "the chosen row")
        if text:
            several = len(sweep.loaded.datasets) > 1
            found[name] = f"On {name}: {text[0].lower()}{text[1:]}" if several else text
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
