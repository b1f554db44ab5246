"""A process is killed in the middle of an embedding pass: the next makes one file, and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.store import Store
from tests.pretrained import HEADS, timm_weights

pytestmark = pytest.mark.slow

# Trains the sweep in the working directory. With an argument it hangs after so many batches.
SWEEP = """
import json, sys, time
from pathlib import Path
from calibration.models import Encoder
from tests.trained import train_sweep

hang, batches, rows = int(sys.argv[1]), 0, []
vectors, embed = Encoder.vectors, Encoder.embed

def counted_vectors(self, inputs):
    global batches
    if len(inputs) > 2:  # not a look that a check takes
        batches += 1
        if batches == hang:
            print("hangs", flush=True)
            time.sleep(600)
    return vectors(self, inputs)

def counted_embed(self, inputs, **how):
    found = embed(self, inputs, **how)
    rows.append(len(inputs))
    return found

Encoder.vectors, Encoder.embed = counted_vectors, counted_embed
train_sweep(Path.cwd(), Path("heads.yaml").read_text())
print(json.dumps([count for count in rows if count > 2]))
"""


def started(directory: Path, hang: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SWEEP, str(hang)],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_embedding_pass_costs_that_pass_alone(tmp_path: Path) -> None:
    timm_weights(tmp_path / "weights.pt")
    (tmp_path / "heads.yaml").write_text(HEADS)
    place = tmp_path / "runs" / "embeddings"
    first = started(tmp_path, hang=8)
    with first:
        assert first.stdout is not None
        assert first.stdout.readline() == "hangs\n"
        first.kill()
    assert [path.suffix for path in place.iterdir()] == [".claim"]

    with started(tmp_path, hang=0) as second:
        found, _ = second.communicate()
    assert second.returncode == 0
    assert json.loads(found.splitlines()[-1]) == [1348, 449], "each part in one whole pass"
    assert [path.suffix for path in place.iterdir()] == [".bin"] * 2, "training and test rows"
    store = Store(tmp_path / "runs")
    records = [store.record(key) for key in store.trial_keys()]
    assert [record.status for record in records if record is not None] == ["done"] * (3 + 2 + 2)
