"""Exports with a backbone, frozen or fine-tuned: it and its head load without calsweep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from calibration import calibrators
from sweeps.export.choice import choose
from sweeps.export.package import Wish, assemble
from sweeps.export.writing import write
from tests.exported import described
from tests.pretrained import HEADS, TUNED, few_digits, timm_weights
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
found = {{}}
for name in ("heads", "tuned"):
    made = mlflow.pyfunc.load_model(f"{{name}}/model").predict(numpy.load(f"{{name}}/rows.npy"))
    found[name] = made["probabilities"].tolist()
import calibration
print(json.dumps(found | {{"code": calibration.__file__}}))
"""


class Exported(NamedTuple):
    directory: Path
    expected: Tensor


def exported(directory: Path, text: str) -> Exported:
    """A model beside some test rows, and what the record says of them."""
    directory.mkdir()
    timm_weights(directory / "weights.pt")
    few_digits(directory / "few.npz")
    sweep = train_sweep(directory, text)
    chosen = choose(sweep.records, sweep.analysis, None, None, None)
    package = assemble(sweep.loaded, sweep.store, chosen, Wish())
    write(package, directory / "model")
    (directory / "weights.pt").unlink()  # nothing of it is needed any more
    dataset = next(iter(sweep.loaded.datasets.values()))
    np.save(directory / "rows.npy", dataset.test(0).inputs[:40].numpy())
    arrays = sweep.store.predictions(chosen.record)
    fitted = calibrators.fit(
        described(directory / "model")["about"]["calibrator"],
        arrays["validation_logits"],
        arrays["validation_labels"],
    )
    return Exported(directory, fitted(arrays["test_logits"][:40]))


def test_exported_models_take_their_backbones_along(tmp_path: Path) -> None:
    both = {
        "heads": exported(tmp_path / "heads", HEADS),
        "tuned": exported(tmp_path / "tuned", TUNED),
    }
    for directory, _ in both.values():
        model = directory / "model"
        assert described(model)["embeds"]
        assert str(tmp_path) not in (model / "artifacts" / "model.json").read_text()
        wanted = (model / "requirements.txt").read_text()
        assert all(f"{name}==" in wanted for name in ("timm", "torchvision", "torch"))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["code"]).is_relative_to(both["heads"].directory / "model")
    for name, (_, expected) in both.items():
        # Rows are embedded in other batches than they were in the sweep, which rounds otherwise.
        torch.testing.assert_close(
            torch.tensor(found[name], dtype=expected.dtype), expected, rtol=1e-3, atol=1e-3
        )
