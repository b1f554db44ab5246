"""How often a headline is wrong about rows that do not differ, and finds one that does.

    python -m tests.benchmarks.bench_claims [--quick]

Five rows, five seeds, every registered calibrator; labels that are pure noise, and labels
that the networks know something of. Minutes on one core, most of it fitting calibrators.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import torch

from calibration import calibrators
from tests.sweeps.analysis.null_sweeps import claims, drawn, headline_of, pool

DRAWS, SWEEPS = 60, 400
SIGNALS = {"pure noise": 0.0, "signal": 1.5}
GAINS = (0.0, 0.03, 0.05, 0.1)
"""What one row is better by in every metric; 0 is the null."""


def main(quick: bool = False) -> int:
    """Print the rates with their binomial errors; 1 if the null is claimed to differ too often."""
    torch.set_num_threads(1)
    names = ["identity", *(name for name in calibrators.names("all") if name != "identity")]
    draws, sweeps = (8, 50) if quick else (DRAWS, SWEEPS)
    failed = False
    print(f"{sweeps} sweeps each: share of headlines with a better; with a better or worse")
    for name, signal in SIGNALS.items():
        networks = pool(draws, 5, names, signal=signal)
        for gain in GAINS:
            rng = np.random.default_rng(1)
            gains = {"focal": gain}
            told = [claims(headline_of(drawn(networks, rng, gains=gains))) for _ in range(sweeps)]
            better, any_claim = np.mean(told, axis=0)
            print(
                f"{name:<12} gain {gain:.2f}  {_rate(better, sweeps)}  {_rate(any_claim, sweeps)}"
            )
            failed |= gain == 0 and any_claim > 0.05 + 3 * math.sqrt(0.05 * 0.95 / sweeps)
    return int(failed)


def _rate(share: float, of: int) -> str:
    return f"{share:6.1%} ± {math.sqrt(share * (1 - share) / of):.1%}"


if __name__ == "__main__":
    sys.exit(main(quick="--quick" in sys.argv))
