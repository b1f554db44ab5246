"""An export under a frozen backbone: backbone, preprocessing and head, loaded without calsweep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from calibration import calibrators
from calibration.data import FixedDataset
from sweeps.export.choice import choose
from sweeps.export.package import Wish, assemble
from sweeps.export.writing import write
from tests.exported import described
from tests.pretrained import HEADS, timm_weights
from tests.trained import train_sweep

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
# Loads a model where neither the repository nor an installed calsweep can be found.
ELSEWHERE = f"""
import importlib.util, json, sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in f"{{f}} {{f.__module__}}".lower()]
sys.path[:] = [p for p in sys.path if "editable" not in p and p != {str(ROOT)!r}]
assert importlib.util.find_spec("sweeps") is None, sys.path
import mlflow, numpy
found = mlflow.pyfunc.load_model("model").predict(numpy.load("rows.npy"))
import calibration
print(json.dumps({{"rows": found["probabilities"].tolist(), "code": calibration.__file__}}))
"""


def test_an_exported_head_takes_its_backbone_along(tmp_path: Path) -> None:
    timm_weights(tmp_path / "weights.pt")
    sweep = train_sweep(tmp_path, HEADS)
    chosen = choose(sweep.records, sweep.analysis, None, None, None)
    package = assemble(sweep.loaded, sweep.store, chosen, Wish())
    model = tmp_path / "model"
    write(package, model)
    (tmp_path / "weights.pt").unlink()  # nothing of it is needed any more

    about = described(model)
    assert about["embeds"]
    assert str(tmp_path) not in (model / "artifacts" / "model.json").read_text()
    wanted = (model / "requirements.txt").read_text()
    assert all(f"{name}==" in wanted for name in ("timm", "torchvision", "torch"))

    dataset = sweep.loaded.datasets["digits"]
    assert isinstance(dataset, FixedDataset)
    np.save(tmp_path / "rows.npy", dataset.test(0).inputs[:40].numpy())
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["code"]).is_relative_to(model)
    arrays = sweep.store.predictions(chosen.record)
    fitted = calibrators.fit(
        about["about"]["calibrator"], arrays["validation_logits"], arrays["validation_labels"]
    )
    expected = fitted(arrays["test_logits"][:40])
    # Rows are embedded in other batches than they were in the sweep, which rounds otherwise.
    torch.testing.assert_close(
        torch.tensor(found["rows"], dtype=expected.dtype), expected, rtol=1e-3, atol=1e-3
    )
