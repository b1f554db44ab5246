"""What a headline claims of rows that do not differ, and of one that does.

``python -m tests.benchmarks.bench_claims`` is the same with every calibrator and many more
sweeps, which takes minutes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sweeps.analysis import Baseline
from tests.sweeps.analysis.null_sweeps import claims, drawn, headline_of, pool

pytestmark = pytest.mark.slow

CALIBRATORS = ("identity", "temperature", "platt_logits", "histogram_mass")
SWEEPS = 40


@pytest.fixture(scope="module")
def networks() -> pd.DataFrame:
    return pool(8, 5, CALIBRATORS, signal=0.0, seed=3)


def test_pure_noise_is_rarely_called_better(networks: pd.DataFrame) -> None:
    """At 5 %, more than 6 of 40 sweeps would be wrong with a probability of 0.3 %."""
    rng = np.random.default_rng(0)
    sweeps = [drawn(networks, rng) for _ in range(SWEEPS)]
    assert sum(claims(headline_of(tidy))[1] for tidy in sweeps) <= 6
    # What a calibrator brings is there to be found: from the baseline as it is, all differ.
    as_is = Baseline("standard", "identity")
    assert all(claims(headline_of(tidy, as_is))[0] for tidy in sweeps[:5])


def test_a_real_difference_is_found(networks: pd.DataFrame) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        told = headline_of(drawn(networks, rng, gains={"focal": 0.3}))
        assert told.lead.startswith("On null, focal")
        assert "better in ECE" in told.lead
        assert "more accurate" in told.lead
        assert told.others.count("better") == 0
