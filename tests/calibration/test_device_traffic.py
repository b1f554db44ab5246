"""What a training sends to a GPU and waits for, counted on a fake one.

Rows that fit are there, and an epoch sends the order of its rows; of others every batch is sent
once. Nothing waits: what a GPU computes is read between epochs only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from calibration.augmentation import _AUGMENTATIONS, augmented
from calibration.data import Part, Protocol, Splits, placement
from calibration.data.mapped import MappedFile, MappedRows
from calibration.data.transforms import Standardise
from calibration.methods import METHODS, make_method
from calibration.seeds import seeded
from calibration.testing import problems
from calibration.training import Totals, TrainingRun
from calibration.training_config import TrainingConfig
from tests.calibration.fake_gpu import GPU, FakeGpu, fake_gpu

BATCH = 48
HELD_OUT = Protocol(name="traffic", validation=60, meta_validation=64)
"""More rows than a batch has: every one gets others."""
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in METHODS),
    ("mmce", {"schedule": "switch"}),
    ("mmce", {"schedule": "interleaved"}),
    ("mmce", {"schedule": "gradient_balanced"}),
    ("multi_objective", {"weighting": "meta"}),
    ("fl_gamma_sece", {"lookahead": "all"}),
    ("bo4sc", {"outer_optimiser": "adam", "restart": "initial"}),
    ("bo4sc", {"engine": "adjoint"}),
    ("bo4sc", {"engine": "truncated", "engine_terms": 2}),
    ("bo4sc", {"engine": "one_step"}),
]


def train_epoch(run: TrainingRun, gpu: FakeGpu | None = None) -> int:
    """One epoch; what was counted is what its batches, steps and sums did. Returns the batches."""
    numbers, totals, batches = run.numbers_now(), Totals(), 0
    if gpu is not None:
        gpu.forget()
    with torch.no_grad(), seeded(run.seed, "epoch", run.epoch) as generator:
        for window in run.windows(generator):
            run.state, logged = run.method.steps(run.learner, run.state, window, numbers, generator)
            totals.add(logged)
            batches += len(window)
    if gpu is not None:
        counted = gpu.copies.copy(), gpu.waits.copy()
    run.end_epoch(1, totals.means(), numbers)
    if gpu is not None:
        gpu.copies, gpu.waits = counted
    return batches


def drawing(name: str, hyperparameters: dict[str, Any], device: Any) -> TrainingRun:
    problem = problems.two_clouds()
    method = make_method(name, hyperparameters)
    return TrainingRun(
        method,
        problem.dataset().split(HELD_OUT, 0, held_out=method.needs_held_out),
        model=problem.model,
        model_options=problem.model_options,
        classes=problem.classes,
        config=problem.training.model_copy(update={"batch_size": BATCH}),
        seed=0,
        device=device,
    )


@pytest.mark.parametrize(("name", "hyperparameters"), VARIANTS)
def test_no_step_waits_and_resident_rows_are_not_sent(
    name: str, hyperparameters: dict[str, Any]
) -> None:
    here = drawing(name, hyperparameters, "cpu")
    with fake_gpu() as gpu:
        there = drawing(name, hyperparameters, GPU)
        for _ in range(2):  # past the first steps and BO4SC's warm phase
            train_epoch(here)
            batches = train_epoch(there, gpu)
            assert not gpu.waits
        order, *others = gpu.copies
        # Numbers of held-out rows, mixup's partners and their share: never rows.
        held_out = 0 if there.held_out is None else len(there.held_out.labels)
        drawn = 2 if name == "mixup" else int((there.method.held_out_batch or BATCH) < held_out)
        assert len(others) == batches * drawn
        assert order.size == 8 * len(there.train.labels)
        assert all(copy.size <= 8 * BATCH for copy in others)
        assert not any(copy.waits for copy in gpu.copies)
        assert there.curve == here.curve


def mapped(folder: Path, part: Part) -> Part:
    path = folder / f"{len(part.labels)}.npy"
    np.save(path, part.inputs.numpy())
    file = MappedFile.of(np.load(path, mmap_mode="r"))
    assert file is not None
    return part._replace(inputs=MappedRows(file, part.inputs.dtype))


def images() -> Splits:
    drawn = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (90, 3, 8, 8), dtype=torch.uint8, generator=drawn)
    labels = torch.arange(90) % 3
    parts = [Part(pixels[place], labels[place]) for place in (slice(50), slice(50, 90))]
    return Splits(parts[0], parts[1], None, Standardise.fit(pixels[:50]))


def of_images(splits: Splits, device: Any, **settings: Any) -> TrainingRun:
    config = TrainingConfig(epochs=4, batch_size=16, evaluate_every=1, **settings)
    network = {"model": "mlp", "model_options": {"widths": (8,)}, "classes": 3}
    method = make_method("standard", {})
    return TrainingRun(method, splits, **network, config=config, seed=0, device=device)


@pytest.mark.parametrize("rows", ["in a file", "in memory"])
@pytest.mark.parametrize("prepared", [False, True])
def test_rows_that_do_not_fit_are_sent_once_with_their_batch(
    rows: str, prepared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = images()
    if prepared:  # numbers, which are transformed before they are sent
        train, validation = (
            part._replace(inputs=part.inputs.double()) for part in (splits.train, splits.validation)
        )
        splits = replace(splits, train=train, validation=validation)
    here, validation_rows = of_images(splits, "cpu"), splits.validation
    if rows == "in a file":
        train, validation = (mapped(tmp_path, p) for p in (splits.train, splits.validation))
        splits = replace(splits, train=train, validation=validation)
    monkeypatch.setattr(placement, "room_for_rows", lambda device: 1000.0)
    with fake_gpu() as gpu:
        there = of_images(splits, GPU)
        for _ in range(2):
            train_epoch(here)
            train_epoch(there, gpu)
        order, *batches = gpu.copies
        each = {(False, rows): 1, (True, "in a file"): 8, (True, "in memory"): 4}[prepared, rows]
        assert order.size == 8 * 50
        assert [copy.size for copy in batches] == [each * 192 * size for size in (16, 16, 16, 2)]
        assert not gpu.waits
        assert not any(copy.waits for copy in gpu.copies)
        assert there.curve == here.curve
        gpu.forget()
        predicted = there.predict(splits.validation)
        assert [copy.size for copy in gpu.copies if not copy.waits] == [each * 192 * 40]
        assert predicted.equal(here.predict(validation_rows))


def test_rows_of_a_file_that_fit_stay_on_the_device(tmp_path: Path) -> None:
    splits = images()
    here = of_images(splits, "cpu")
    splits = replace(splits, train=mapped(tmp_path, splits.train))
    with fake_gpu() as gpu:
        there = of_images(splits, GPU)
        for _ in range(2):
            train_epoch(here)
            train_epoch(there, gpu)
        assert [copy.size for copy in gpu.copies] == [8 * 50]
        assert there.curve == here.curve


@pytest.mark.parametrize("name", _AUGMENTATIONS)
def test_augmentations_send_what_they_draw_and_wait_for_nothing(name: str) -> None:
    pixels = images().train.inputs
    expected = augmented(pixels, [name], torch.Generator().manual_seed(1))
    with fake_gpu() as gpu:
        on_gpu = pixels.to(GPU)
        gpu.forget()
        made = augmented(on_gpu, [name], torch.Generator().manual_seed(1))
        assert gpu.copies
        assert not gpu.waits
        assert not any(copy.waits for copy in gpu.copies)
        assert made.cpu().equal(expected)


def test_the_fake_gpu_counts_what_waits_and_refuses_what_cuda_refuses() -> None:
    values = torch.arange(4.0)
    with fake_gpu() as gpu:
        there = values.to(GPU)
        values.pin_memory().to(GPU)
        values.pin_memory().to(GPU, non_blocking=True)
        torch.tensor([1.0, 2.0], device=GPU)
        torch.zeros(3, device=GPU).copy_(torch.ones(3))
        assert [copy.waits for copy in gpu.copies] == [True, True, False, True, True]
        float(there[1]), bool(there[0] > 0), there[there > 1], there.nonzero(), there.cpu()
        assert gpu.waits == {"_local_scalar_dense": 2, "index": 1, "nonzero": 1, "to the host": 1}
        with pytest.raises(AssertionError, match="two devices"):
            there + values
        assert (there + 1).cpu().equal(values + 1)
