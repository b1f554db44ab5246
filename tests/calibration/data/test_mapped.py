"""Rows that stay in their file: the same numbers, without the memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from calibration.cohort import Cohort
from calibration.data import PROTOCOLS, Dataset, arrays, load_dataset, mapped, npz
from calibration.data.mapped import MappedFile, MappedRows, in_memory, is_mapped, read_ahead
from calibration.methods import make_method
from calibration.prefetch import ahead
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

RNG = np.random.default_rng(0)


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mapped, npz, arrays):
        monkeypatch.setattr(module, "IN_MEMORY_BYTES", 0)


def saved(folder: Path, values: NDArray[Any]) -> MappedRows:
    np.save(folder / "values.npy", values)
    file = MappedFile.of(np.load(folder / "values.npy", mmap_mode="r"))
    assert file is not None
    return MappedRows(file, torch.from_numpy(values).dtype)


def test_rows_are_what_a_tensor_has_whatever_is_done_with_them(tmp_path: Path) -> None:
    values = RNG.integers(0, 256, (50, 3, 4, 4), dtype=np.uint8)
    rows, plain = saved(tmp_path, values), torch.from_numpy(values)
    order = torch.from_numpy(RNG.permutation(50))
    taken, expected = rows[order][5:40], plain[order][5:40]
    assert is_mapped(taken)
    assert (taken.shape, taken.dtype, taken.ndim, len(taken)) == (
        expected.shape,
        torch.uint8,
        4,
        35,
    )
    assert torch.equal(in_memory(taken), expected)
    assert torch.equal(taken.float() / 3, expected.float() / 3)
    assert torch.equal(torch.cat([taken, expected]), torch.cat([expected, expected]))
    assert torch.equal(taken[:, 1], expected[:, 1])
    assert [len(piece) for piece in taken.split(20)] == [20, 15]
    assert torch.equal(torch.cat(taken.split(20)), expected)
    assert torch.equal(taken, expected)
    assert torch.equal(taken, rows[order][5:40])
    assert not torch.equal(taken, rows[order][6:41])
    np.testing.assert_array_equal(taken.numpy(), expected.numpy())
    assert taken.to("cpu").device == torch.device("cpu")


def test_a_view_of_a_mapped_array_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    np.save(tmp_path / "values.npy", RNG.normal(size=(20, 3)))
    whole = np.load(tmp_path / "values.npy", mmap_mode="r")
    assert MappedFile.of(whole) is not None
    assert MappedFile.of(whole[5:]) is None
    assert MappedFile.of(np.asarray(whole)) is None


def test_pickled_rows_come_from_the_file_or_with_the_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = RNG.normal(size=(30, 4))
    rows = saved(tmp_path, values)[torch.arange(29, 9, -1)]
    sent = pickle.dumps(rows)
    arrived = pickle.loads(sent)
    assert is_mapped(arrived)
    assert isinstance(arrived.content, np.memmap)
    assert torch.equal(in_memory(arrived), torch.from_numpy(values)[9 + 1 : 30].flip(0))
    monkeypatch.setattr(mapped, "SHIPPED_BYTES", 0)
    by_name_only = pickle.dumps(rows)
    assert len(by_name_only) < len(sent) - values.nbytes / 2
    (tmp_path / "values.npy").unlink()
    assert torch.equal(in_memory(pickle.loads(sent)), in_memory(arrived))
    with pytest.raises(ValueError, match=r"values\.npy: not on this machine.* CALSWEEP_CACHE"):
        pickle.loads(by_name_only)


@pytest.mark.parametrize("form", ["npz images", "npy table", "npy images"])
@pytest.mark.usefixtures("nothing_is_small")
def test_training_from_a_file_is_training_from_memory(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, with held-out rows, augmentation, cohorts and resumption."""
    labels = np.arange(120) % 3
    if form == "npz images":
        inputs: NDArray[Any] = RNG.integers(0, 256, (120, 1, 8, 8), dtype=np.uint8)
        np.savez(tmp_path / "data.npz", X=inputs, y=labels)
        options: dict[str, Any] = {"path": tmp_path / "data.npz"}
    else:
        inputs = RNG.normal(size=(120, 6) if "table" in form else (120, 8, 8)).astype(np.float32)
        np.save(tmp_path / "x.npy", inputs)
        np.save(tmp_path / "y.npy", labels)
        options = {"path": tmp_path / "x.npy", "labels": tmp_path / "y.npy"}
    from_file = load_dataset("arrays", options)
    for module in (mapped, npz, arrays):
        monkeypatch.setattr(module, "IN_MEMORY_BYTES", 10**9)
    from_memory = load_dataset("arrays", options)
    assert from_file.fingerprint == from_memory.fingerprint
    assert is_mapped(from_file.test(0).inputs)
    assert not is_mapped(from_memory.test(0).inputs)
    augmented = {} if "table" in form else {"augmentation": "crop_flip"}

    def run(dataset: Dataset, method: str) -> TrainingRun:
        made = make_method(method, {"lr": 0.05})
        splits = dataset.split(PROTOCOLS["honest"], 0, held_out=made.needs_held_out)
        config = TrainingConfig(epochs=3, batch_size=16, **augmented)
        size = {"model": "mlp", "model_options": {"widths": (8,)}, "classes": 3}
        return TrainingRun(made, splits, config=config, seed=1, **size)

    for method in ("standard", "joint_beta"):
        one, other = run(from_file, method), run(from_memory, method)
        assert is_mapped(one.train.inputs)
        for _ in range(3):
            assert one.run_epoch() == other.run_epoch()
        assert torch.equal(one.best.parameters, other.best.parameters)
        tested = [r.predict(d.test(0)) for r, d in ((one, from_file), (other, from_memory))]
        assert torch.equal(*tested)
    members = Cohort([run(from_file, "standard") for _ in range(2)])
    assert members.runs[0].train is members.runs[1].train
    while members.active:
        members.run_epoch()
    assert not members.failures
    alone = run(from_memory, "standard")
    while not alone.done:
        alone.run_epoch()
    assert torch.equal(members.runs[1].state.parameters, alone.state.parameters)


def test_work_ahead_comes_in_order_and_stops_when_nobody_wants_it() -> None:
    seen: list[int] = []
    gate = threading.Event()

    def slow(item: int) -> int:
        if item == 0:
            gate.wait(60)
        seen.append(item)
        return item * item

    gate.set()
    assert list(ahead(slow, range(20), threads=3, depth=5)) == [i * i for i in range(20)]
    seen.clear()
    left = ahead(slow, iter(range(1000)), threads=2, depth=4)
    assert next(left) == 0
    left.close()  # type: ignore[attr-defined]
    assert len(seen) <= 1 + 4 + 2

    def fails(item: int) -> int:
        if item == 3:
            raise ValueError("row 3")
        return item

    given = ahead(fails, range(9))
    assert [next(given) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="row 3"):
        next(given)


def test_batches_read_ahead_are_the_rows_asked_for(tmp_path: Path) -> None:
    values = RNG.normal(size=(40, 2))
    rows, batches = saved(tmp_path, values), torch.randperm(40).split(7)
    for read, batch in zip(read_ahead(rows, batches), batches, strict=True):
        assert not is_mapped(read)
        assert torch.equal(read, torch.from_numpy(values)[batch])


def test_bad_arrays_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object))
    (tmp_path / "short.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    for options, words in (
        ({"path": tmp_path / "x.npy"}, "name the file of the labels"),
        ({"path": tmp_path / "x.npy", "labels": tmp_path / "o.npy"}, r"o\.npy: not a readable NPY"),
        ({"path": tmp_path / "short.npy", "labels": tmp_path / "x.npy"}, r"short\.npy: not a"),
        ({"path": tmp_path / "none.npy", "labels": tmp_path / "x.npy"}, r"none\.npy: no such"),
    ):
        with pytest.raises(ValueError, match=words):
            load_dataset("arrays", options)


MEMORY = """
    import resource, sys
    from pathlib import Path

    import torch
    from calibration import training
    from calibration.data import PROTOCOLS, arrays, load_dataset
    from calibration.data.mapped import is_mapped
    from calibration.methods import make_method
    from calibration.training import TrainingRun
    from calibration.training_config import TrainingConfig

    arrays.IN_MEMORY_BYTES = 10**7
    training.PREDICTION_BATCH = 512
    torch.set_num_threads(1)
    sys.stdout.flush()
    held = int(next(l for l in Path("/proc/self/status").read_text().splitlines()
                    if l.startswith("VmData")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + 100 * 10**6,) * 2)
    folder = Path(sys.argv[1])
    data = load_dataset("arrays", {"path": folder / "x.npy", "labels": folder / "y.npy"})
    splits = data.split(PROTOCOLS["honest"], 0, held_out=False)
    run = TrainingRun(
        make_method("standard", {}), splits, model="mlp", model_options={"widths": (4,)},
        classes=2, config=TrainingConfig(epochs=1, batch_size=512), seed=0,
    )
    run.run_epoch()
    assert is_mapped(run.train.inputs)
    run.predict(data.test(0))
    print("rows", len(run.train.labels), len(data.fingerprint))
"""


@pytest.mark.slow
def test_a_training_takes_no_memory_for_rows_that_lie_on_the_disk(tmp_path: Path) -> None:
    """150 MB of pixels in a sparse file, and 100 MB that a process may still allocate."""
    shape = (50_000, 3, 32, 32)
    with (tmp_path / "x.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + int(np.prod(shape)))
    np.save(tmp_path / "y.npy", np.arange(shape[0]) % 2)

    code = [sys.executable, "-c", textwrap.dedent(MEMORY), str(tmp_path)]
    # What the allocator keeps for later is not the question here: large blocks go back at once.
    frugal = os.environ | {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"}
    done = subprocess.run(code, capture_output=True, text=True, check=False, env=frugal)
    assert done.stdout.split() == ["rows", "31875", "64"], done.stderr[-2000:]
