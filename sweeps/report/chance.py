"""Whether an ECE can be distinguished from that of a perfectly calibrated model."""

from __future__ import annotations

import pandas as pd

Z95 = 1.645


def like_perfect(seeds: pd.DataFrame, own_draws: bool) -> bool:
    """Whether the mean ECE over seeds is compatible with perfect calibration (one-sided, 95 %).

    ``seeds`` has ``ece``, ``floor`` and ``floor_q95``, a line per seed: the ECE, and the mean
    and 95 % quantile of the ECE that the row's confidences would have if they were calibrated.
    With ``own_draws`` every seed has its own test set, and averaging reduces the chance part;
    otherwise all share one test set, and it does not.
    """
    return not seeds.empty and bool(seeds["ece"].mean() <= most_by_chance(seeds, own_draws))


def most_by_chance(seeds: pd.DataFrame, own_draws: bool) -> float:
    """The 95 % quantile of the mean ECE over seeds of a calibrated model."""
    if not own_draws:
        return float(seeds["floor_q95"].mean())
    spread = ((seeds["floor_q95"] - seeds["floor"]) / Z95).pow(2).sum() ** 0.5 / len(seeds)
    return float(seeds["floor"].mean() + Z95 * spread)
