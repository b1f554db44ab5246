"""What the simplest within noise costs beside the lowest mean validation NLL, on test data.

    python -m tests.benchmarks.bench_choice [--quick] [STORE SWEEP]

Simulated: five rows, more complex ones better by 0 to 0.02 in NLL, every fast calibrator, sweeps
of five seeds. Recorded: more than half of the seeds of a stored sweep, drawn at random. Prints the
mean difference of the test NLL on seeds that took no part in the choice; fails where it
exceeds the region in which two NLLs are the same in practice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch

from calibration import calibrators
from calibration.methods import METHODS
from sweeps.analysis.noise import nll_region, validation_ratio
from sweeps.sweep import open_sweep
from tests.sweeps.analysis.choices import Cost, cost
from tests.sweeps.analysis.null_sweeps import ROWS, drawn, pool

SIGNALS = {"pure noise": 0.0, "weak signal": 0.7, "signal": 1.5}
STEPS = (0.0, 0.001, 0.005, 0.02)
"""By how much each row is better than the one before it, which is simpler."""


def main(arguments: list[str]) -> int:
    """Print a line per situation; 1 if the rule costs more than the region anywhere."""
    torch.set_num_threads(1)
    quick = "--quick" in arguments
    places = [each for each in arguments if not each.startswith("-")]
    made = _recorded(*places) if places else _simulated(quick)
    failed = False
    print(f"test NLL of the simplest minus that of the lowest mean; the region is {nll_region():g}")
    for name, found in made:
        print(
            f"{name:<32} {found.difference:+.5f} ± {found.error:.5f}, another choice in "
            f"{found.changed:.0%} of {found.sweeps} sweeps",
            flush=True,
        )
        failed |= found.upper > nll_region()
    return int(failed)


def _simulated(quick: bool) -> Iterator[tuple[str, Cost]]:
    names = ["identity", *(name for name in calibrators.names("fast") if name != "identity")]
    draws, sweeps = 40, 300
    if quick:
        names, draws, sweeps = ["identity", "temperature", "vector", "isotonic"], 12, 60
    complexities = {row: METHODS[row].complexity for row in ROWS}
    for name, signal in SIGNALS.items():
        networks = pool(draws, len(ROWS), names, signal=signal)
        for step in STEPS:
            rng = np.random.default_rng(1)
            gains = {row: step * place for place, row in enumerate(ROWS)}
            tidy = drawn(networks, rng, seeds=draws, gains=gains)
            yield f"{name}, steps of {step:g}", cost(tidy, complexities, 0.0, rng, sweeps=sweeps)


def _recorded(store: str, name: str) -> Iterator[tuple[str, Cost]]:
    sweep = open_sweep(name, store)
    methods = sweep.spec.methods
    complexities = {row: METHODS[chosen.method].complexity for row, chosen in methods.items()}
    tidy: pd.DataFrame = sweep.results
    rng = np.random.default_rng(1)
    for dataset, lines in tidy.groupby("dataset", sort=False):
        ratio = validation_ratio(sweep.loaded, str(dataset))
        seeds = lines["seed"].nunique() // 2 + 1
        yield str(dataset), cost(lines, complexities, ratio, rng, sweeps=300, seeds=seeds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
