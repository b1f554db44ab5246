"""Heads on a frozen backbone: what 100 trials cost beside one embedding and their own training.

    python -m tests.benchmarks.bench_backbones

Trials run one after the other in this process, as a worker runs them. CPU time is compared, so
that a busy machine makes no difference.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch

from calibration.models import encoder_of
from sweeps.engine.networks import raw_dataset
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.spec import load_spec
from sweeps.store import Store
from tests.pretrained import HEADS, timm_weights

TRIALS, MOST = 100, 1.3
SPEC = HEADS.replace("trials: 3", f"trials: {TRIALS}").replace("epochs: 3", "epochs: 20")


def measure(directory: Path) -> tuple[float, float, float]:
    """CPU seconds of all search trials, of one embedding pass, and of the heads' training."""
    timm_weights(directory / "weights.pt")
    (directory / "spec.yaml").write_text(SPEC)
    loaded, store = load_spec(directory / "spec.yaml"), Store(directory / "runs")
    plan = Plan(loaded, store)
    total = training = 0.0
    while (trial := plan.next()) is not None:
        if trial.config.phase != "search":
            break
        began = time.process_time()
        run = TrialRun(
            trial.config,
            store,
            calibrators=plan.spec.calibrator_names,
            evaluation=plan.spec.evaluation,
        )
        run.prepare()
        assert run.advance(600)
        total += time.process_time() - began
        training += run.cpu_seconds
        plan.complete(trial.key)
        config = trial.config
    assert config.model is not None
    encoder = encoder_of(config.model.name, config.model.options)
    began = time.process_time()
    encoder.embed(raw_dataset(config).pool.inputs, batch_size=64)  # type: ignore[attr-defined]
    return total, time.process_time() - began, training


def main() -> int:
    """Print the ratio; 1 if it is too large."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="calsweep-bench-") as directory:
        total, one_pass, training = measure(Path(directory))
    ratio = total / (one_pass + training)
    print(f"{TRIALS} head trials: {total:.1f} s of CPU; one embedding pass {one_pass:.1f} s, the")
    print(f"heads' own training {training:.1f} s: ratio {ratio:.2f} (at most {MOST})")
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
