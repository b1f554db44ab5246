"""How often verdicts and intervals about new data are wrong, by simulation.

    python -m tests.sweeps.analysis.crossed_simulations [--quick]

Differences of n seeds on m test rows, d_si = δ + α_s + β_i + γ_si, are drawn with known parts,
judged and counted; the true difference lies at the edge of the region where the level is asked
for. Two kinds of metric: a mean over rows, drawn cell by cell, and a binned one, for which a
calibration error is made of over-confident predictions that seeds and rows disturb.

For ECE on 500 test rows (66 to 1,000 runs each): level 0.0 to 2.5 % (± 0.7 to 2.7 %), coverage 98.6
to 100 %; equivalent at 3.4 standard errors in 43, 68 and 76 % with 3, 5 and 10 seeds where seeds
dominate, in 27, 48 and 56 % where rows do. The bootstrap of rows errs on the cautious side.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from calibration.metrics import METRICS
from calibration.metrics.row_scores import RowScores
from sweeps.analysis.row_evidence import RowEvidence
from sweeps.analysis.statistics import (
    Estimate,
    claim_tests,
    crossed_means,
    look_factor,
    over_seeds,
)

SEEDS, ROWS = (3, 5, 10), (500, 5_000, 50_000)
PARTS = {
    "seeds": (0.9, 0.05, 0.05),
    "rows": (0.05, 0.9, 0.05),
    "interaction": (0.05, 0.05, 0.9),
    "all alike": (1 / 3, 1 / 3, 1 / 3),
}
"""Which share of the mean's variance seeds, rows and their interaction have."""
REGION = 3.4
"""The half-width of equivalence, in standard errors of the mean difference."""


class Rates(NamedTuple):
    """Shares of simulated comparisons.

    ``level``: called better at the region's edge, one-sided at 5 %; ``tail``: the same at 5 % / 12,
    as Holm's correction asks for it, over that level; ``coverage`` of the 95 % interval;
    ``equivalent``: called so without any difference; ``power``: called better two regions off.
    """

    level: float
    tail: float
    coverage: float
    equivalent: float
    power: float


def mean_estimates(
    seeds: int, rows: int, parts: tuple[float, float, float], runs: int, rng: np.random.Generator
) -> Iterator[Estimate]:
    """Estimates of a mean over rows whose true value is 0 and whose variance is 1."""
    by_seed, by_row, by_both = parts
    for _ in range(runs):
        cells = math.sqrt(by_both * seeds * rows) * rng.standard_normal((seeds, rows))
        cells += math.sqrt(by_seed * seeds) * rng.standard_normal((seeds, 1))
        cells += math.sqrt(by_row * rows) * rng.standard_normal((1, rows))
        yield crossed_means(cells)


def fresh_estimates(seeds: int, runs: int, rng: np.random.Generator) -> Iterator[Estimate]:
    """Estimates where every seed draws its own test rows: all there is are independent means."""
    for values in math.sqrt(seeds) * rng.standard_normal((runs, seeds)):
        yield over_seeds(values)


def binned_estimates(
    seeds: int, rows: int, dominating: str, runs: int, rng: np.random.Generator
) -> Iterator[Estimate]:
    """Estimates of the difference in ECE of two rows of a sweep that are equally calibrated.

    Each network's confidence is wrong by an amount of its own (seeds), and both say of every
    row what is true of it but for noise (rows: shared by all networks, or else each one's own).
    """
    shift = {"seeds": 0.03, "rows": 0.002, "interaction": 0.002}[dominating]
    shared = {"seeds": 0.5, "rows": 0.9, "interaction": 0.0}[dominating]
    names = ("ours", "identity"), ("baseline", "identity")
    for _ in range(runs):
        truth = torch.from_numpy(rng.uniform(0.5, 0.95, rows))
        common = torch.from_numpy(rng.random(rows))
        scores: dict[tuple[tuple[str, str], int], RowScores] = {}
        for name, seed in product(names, range(seeds)):
            own = torch.from_numpy(rng.random(rows))
            lot = torch.where(torch.from_numpy(rng.random(rows)) < shared, common, own)
            confidence = (truth + 0.05 + shift * rng.standard_normal()).clamp(0, 1)
            scores[name, seed] = RowScores(confidence.float(), lot < truth, None, None, "")
        evidence = RowEvidence(lambda name, seed, known=scores: known[name, seed], bins=15)  # type: ignore[misc]
        metric = METRICS["ece"]
        values = {place: float(metric.measure(found.pairs, 15)) for place, found in scores.items()}
        differences = {s: values[names[0], s] - values[names[1], s] for s in range(seeds)}
        found = evidence.estimate(metric, *names, differences)
        assert found is not None
        yield found


def rates(estimates: Iterator[Estimate], error: float = 1.0, *, region: float = REGION) -> Rates:
    """Count the verdicts on estimates around 0, moved to where each question is asked."""
    half = region * error
    counts, runs = np.zeros(5), 0
    for found in estimates:
        runs += 1
        at_edge = claim_tests(found._replace(mean=found.mean - half), half).below
        low, high = found.interval()
        far = claim_tests(found._replace(mean=found.mean - 2 * half), half).below
        equivalent = claim_tests(found, half).within
        counts += [
            *(at_edge < 0.05, at_edge < 0.05 / 12, low <= 0 <= high),
            *(equivalent < 0.05, far < 0.05),
        ]
    level, tail, *others = counts / runs
    return Rates(level, tail * 12 / 0.05, *others)


def false_looks(
    seeds: tuple[int, ...], parts: tuple[float, float, float], runs: int, rng: np.random.Generator
) -> float:
    """How often any of the looks with so many seeds calls better what lies at the edge."""
    false, rows = 0, 500
    for _ in range(runs):
        most = seeds[-1]
        cells = math.sqrt(parts[2] * most * rows) * rng.standard_normal((most, rows))
        cells += math.sqrt(parts[0] * most) * rng.standard_normal((most, 1))
        cells += math.sqrt(parts[1] * rows) * rng.standard_normal((1, rows))
        false += any(
            claim_tests(crossed_means(cells[:n]), 0.0).below * look_factor(look) < 0.05
            for look, n in enumerate(seeds, 1)
        )
    return false / runs


def _shown(name: str, found: Rates, runs: int) -> None:
    noise = math.sqrt(0.05 * 0.95 / runs)
    print(
        f"{name:<44} level {found.level:6.2%} ± {noise:.2%}  ×{found.tail:4.2f} at 5 %/12  "
        f"coverage {found.coverage:6.2%}  equivalent {found.equivalent:6.2%}  "
        f"power {found.power:6.2%}",
        flush=True,
    )


def main(quick: bool = False) -> None:
    """Print the whole table."""
    rng = np.random.default_rng(0)
    print(f"region: {REGION} standard errors; ± is one standard deviation of the simulation")
    for seeds in SEEDS:
        runs = 2_000 if quick else 20_000
        _shown(f"fresh test rows, {seeds} seeds", rates(fresh_estimates(seeds, runs, rng)), runs)
    for (name, parts), seeds, rows in product(PARTS.items(), SEEDS, ROWS):
        runs = max(200, (2_000_000 if quick else 40_000_000) // (seeds * rows))
        runs = min(runs, 5_000)
        found = rates(mean_estimates(seeds, rows, parts, runs, rng))
        _shown(f"mean, {name}, {seeds} seeds × {rows} rows", found, runs)
    for name, seeds, rows in product(("seeds", "rows", "interaction"), SEEDS, ROWS):
        runs = 100 if quick else max(200, min(1_000, 8_000_000 // (seeds * rows)))
        several = list(binned_estimates(seeds, rows, name, runs, rng))
        error = float(np.std([found.mean for found in several]))
        found = rates(iter(several), error)
        _shown(f"ECE, {name}, {seeds} seeds × {rows} rows", found, runs)
    for name, parts in PARTS.items():
        runs = 1_000 if quick else 10_000
        share = false_looks((3, 6, 9), parts, runs, rng)
        print(f"three looks at 3, 6, 9 seeds, {name:<14} {share:6.2%} called better at the edge")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
