"""How many trials fit where, and how large a share of a GPU one of them needs."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from calibration.data import arrays, mapped
from calibration.training import PREDICTION_BATCH
from sweeps.ray_backend.capacity import Capacity, Demand, Machine, machines
from sweeps.ray_backend.gpu_share import (
    ASSUMED_MEMORY,
    MOST_PER_GPU,
    PROCESS_BYTES,
    SAFETY,
    choose_share,
    gpu_share,
    memory_fraction,
    trial_bytes,
)
from sweeps.spec import LoadedSpec, SpecError, load_spec


def brute_force(cpus: int, gpus: int, cpu: int, gpu: int) -> int:
    """Put trials in one by one, in hundredths; a share of a GPU stays on one of them."""
    free, devices, placed = 100 * cpus, [100] * gpus, 0
    while free >= cpu:
        if gpu >= 100:
            empty = [i for i, left in enumerate(devices) if left == 100][: gpu // 100]
            if len(empty) < gpu // 100:
                break
            for i in empty:
                devices[i] = 0
        elif gpu:
            fitting = [i for i, left in enumerate(devices) if left >= gpu]
            if not fitting:
                break
            devices[fitting[0]] -= gpu
        free -= cpu
        placed += 1
    return placed


@given(
    st.integers(0, 16),
    st.integers(0, 8),
    st.sampled_from([10, 25, 50, 100, 200, 400]),
    st.sampled_from([0, 1, 10, 20, 25, 30, 33, 40, 50, 60, 100, 200]),
)
def test_room_is_what_fits_one_by_one(cpus: int, gpus: int, cpu: int, gpu: int) -> None:
    machine = Machine("here", cpus, gpus)
    assert machine.room(Demand(cpu / 100, gpu / 100)) == brute_force(cpus, gpus, cpu, gpu)


def test_dead_nodes_are_not_counted() -> None:
    nodes = [
        {"Alive": True, "NodeManagerAddress": "a", "Resources": {"CPU": 4.0, "GPU": 1.0}},
        {"Alive": False, "NodeManagerAddress": "b", "Resources": {}},
        {"Alive": True, "NodeManagerAddress": "c", "Resources": {}},
    ]
    assert machines(nodes) == [Machine("a", 4, 1), Machine("c", 0, 0)]


def test_room_follows_the_nodes_that_come_and_go() -> None:
    there, now = [Machine("a", 2, 0)], [0.0]
    room = Capacity(Demand(1, 0), lambda: list(there), clock=lambda: now[0])
    assert room() == 2
    there.append(Machine("b", 4, 0))
    assert room() == 2  # it does not ask Ray at every turn
    now[0] = 10.0
    assert room() == 6
    assert room.describe() == "2 nodes, 6 CPUs, 0 GPUs: 6 trials at once, each with 1 CPU"
    there.clear()
    now[0] = 20.0
    assert room() == 1  # one waits, and takes the first machine that comes back


def test_a_cluster_that_grows_is_asked_for_more_than_it_has() -> None:
    assert Capacity(Demand(1, 1), lambda: [], concurrent=16)() == 16
    assert Capacity(Demand(1, 0), lambda: [Machine("a", 40, 0)], concurrent=16)() == 40
    with pytest.raises(SpecError, match="needs 1 CPU and 1 GPU, but no machine here has more"):
        Capacity(Demand(1, 1), lambda: [Machine("a", 8, 0)])


@pytest.mark.parametrize(
    ("needed", "memory", "share"),
    [(1e9, 16e9, 1 / 8), (2.1e9, 16e9, 1 / 7), (5e9, 16e9, 1 / 3), (9e9, 16e9, 1), (40e9, 16e9, 1)],
)
def test_the_share_is_the_smallest_that_holds_the_trial(
    needed: float, memory: float, share: float
) -> None:
    assert gpu_share(needed, memory) == pytest.approx(share)
    assert share >= min(needed / memory, 1) or share == 1 / MOST_PER_GPU


def test_the_process_itself_has_its_place_in_the_share() -> None:
    for share in (1 / 8, 1 / 4, 1 / 2):
        assert memory_fraction(share, 80e9) + PROCESS_BYTES / 80e9 == pytest.approx(share)
    assert 0 < memory_fraction(1 / 8, 2e9) < 1 / 8


def spec(tmp_path: Path, **changes: object) -> LoadedSpec:
    written = {
        "name": "sized",
        "datasets": ["digits"],
        "methods": {"standard": {}},
        "training": {"epochs": 2, "batch_size": 128},
        "resources": {"gpu": "auto"},
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(written | changes))
    return load_spec(path)


def test_larger_networks_batches_and_windows_need_more(tmp_path: Path) -> None:
    def needs(**changes: object) -> float:
        return trial_bytes(spec(tmp_path, **changes))

    small = needs(model={"name": "mlp", "widths": [64]})
    # 4096² weights in eight copies of four bytes are there, whatever else is.
    wide = needs(model={"name": "mlp", "widths": [4096, 4096]})
    assert wide > 8 * 4 * 4096**2 > small
    several = {"bo4sc": {"inner_steps": 20}}
    batches = [
        needs(methods=several, training={"epochs": 2, "batch_size": size}) for size in (128, 512)
    ]
    steps = [
        needs(methods={"bo4sc": {"inner_steps": count}}, training={"epochs": 2, "batch_size": 512})
        for count in (1, 20)
    ]
    for less, more in (batches, steps):
        assert less < more


def test_images_are_counted_as_they_are_stored(tmp_path: Path) -> None:
    """A byte for each value on the GPU, whatever type they are trained in."""
    images = np.arange(300 * 3 * 16 * 16).reshape(300, 3, 16, 16) % 251

    def stored_as(kind: type) -> LoadedSpec:
        path = tmp_path / f"{kind.__name__}.npz"
        np.savez(path, inputs=images.astype(kind), labels=np.arange(300) % 2)
        return spec(tmp_path, datasets=[{"name": "arrays", "path": str(path)}])

    stored, floats = stored_as(np.uint8), stored_as(np.float32)
    (dataset,) = stored.datasets.values()
    parts = dataset.split(stored.spec.protocol, 0, held_out=True)
    assert parts.meta_validation is not None
    there = sum(len(p.labels) for p in (parts.train, parts.validation, parts.meta_validation))
    more = trial_bytes(floats) - trial_bytes(stored)
    assert more == pytest.approx(SAFETY * 3 * there * 3 * 16 * 16)


def test_of_rows_in_a_file_only_batches_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 20_000
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((rows, 50), dtype=np.float32))
    np.save(tmp_path / "labels.npy", np.arange(rows) % 2)
    data = {"name": "arrays", "path": str(path), "labels": str(tmp_path / "labels.npy")}
    in_memory = trial_bytes(spec(tmp_path, datasets=[data]))
    for module in (arrays, mapped):
        monkeypatch.setattr(module, "IN_MEMORY_BYTES", 0)
    loaded = spec(tmp_path, datasets=[data])
    (dataset,) = loaded.datasets.values()
    parts = dataset.split(loaded.spec.protocol, 0, held_out=True)
    assert parts.meta_validation is not None
    there = sum(len(p.labels) for p in (parts.train, parts.validation, parts.meta_validation))
    less = in_memory - trial_bytes(loaded)
    assert less == pytest.approx(SAFETY * (there - 2 * PREDICTION_BATCH) * 50 * 4)


def test_a_cohort_is_as_large_as_the_gpu_holds(tmp_path: Path) -> None:
    loaded = spec(tmp_path, cohort=8)
    each = trial_bytes(loaded)
    three, eight = (PROCESS_BYTES + members * each for members in (3, 8))
    for memory, expected in ((three + 1, (1, 3)), (eight + 1, (1, 8)), (2 * eight + 1, (0.5, 8))):
        assert choose_share(loaded, 1, lambda memory=memory: memory) == expected


def test_auto_shares_the_gpus_that_there_are(tmp_path: Path) -> None:
    loaded = spec(tmp_path)
    assert choose_share(loaded, 0, lambda: ASSUMED_MEMORY).gpu == 0
    for gpus, memory in product((1, 8), (1e9, 16e9)):
        share, _ = choose_share(loaded, gpus, lambda memory=memory: memory)
        assert share == (1 / MOST_PER_GPU if memory > 8e9 else 1)
