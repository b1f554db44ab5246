"""Images in folders and tables: decoded once, named when they cannot be read."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from calibration.cohort import Cohort
from calibration.data import PROTOCOLS, Dataset, image_cache, load_dataset
from calibration.data.files import DataFileError
from calibration.data.fixed import described
from calibration.data.image_cache import ImageForm
from calibration.methods import make_method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

RNG = np.random.default_rng(0)
CLASSES = ("cat", "dog", "owl")
FORK = multiprocessing.get_context("fork")


def picture(mode: str = "RGB", size: tuple[int, int] = (12, 10)) -> Image.Image:
    shape = (size[1], size[0], len(Image.new(mode, (1, 1)).getbands()))
    return Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8).squeeze(), mode)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight images of each class: PNG, WebP and JPEG."""
    monkeypatch.setenv("CALSWEEP_CACHE", str(tmp_path / "cache"))
    for name in CLASSES:
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(8):
            suffix = ("png", "webp", "JPG")[number % 3]
            lossless = {"lossless": True} if suffix == "webp" else {}
            picture().save(tmp_path / "pets" / name / f"{number}.{suffix}", **lossless)
    return tmp_path / "pets"


def load(folder: Path, **options: Any) -> Dataset:
    return load_dataset("image_folder", {"path": str(folder)} | options)


def pixels(dataset: Dataset) -> dict[bytes, int]:
    """The class of every image."""
    parts = [dataset._pool, dataset.test(0)]  # type: ignore[attr-defined]
    return {
        image.numpy().tobytes(): int(label)
        for part in parts
        for image, label in zip(part.inputs, part.labels, strict=True)
    }


def expected(folder: Path, convert: Callable[[Image.Image], Image.Image]) -> dict[bytes, int]:
    found = {}
    for path in folder.rglob("*.*"):
        values = np.atleast_3d(np.asarray(convert(Image.open(path)))).transpose(2, 0, 1)
        found[values.tobytes()] = CLASSES.index(path.parent.name)
    return found


def test_every_image_is_there_under_its_directorys_name(folder: Path) -> None:
    dataset = load(folder)
    assert (dataset.name, dataset.kind, dataset.class_names) == ("pets", "image", CLASSES)
    assert dataset.test(0).inputs.shape[1:] == (3, 10, 12)
    assert pixels(dataset) == expected(folder, lambda image: image.convert("RGB"))
    grey = load(folder, colours="grey", size=[5, 4], fit="stretch", name="mine")
    assert grey.name == "mine"
    assert pixels(grey) == expected(
        folder, lambda image: image.convert("L").resize((4, 5), Image.Resampling.BILINEAR)
    )


def test_a_crop_keeps_proportions_and_takes_the_middle() -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200
    buffer = io.BytesIO()
    Image.fromarray(wide).save(buffer, "PNG")
    assert (ImageForm((4, 4)).decode(buffer.getvalue()) == 200).all()
    assert (ImageForm((4, 4), fit="stretch").decode(buffer.getvalue()) == 200).mean() < 0.6


def test_images_are_decoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(folder, size=8)
    decoded: list[Any] = []
    real = ImageForm.decode

    def counted(self: ImageForm, source: Any) -> NDArray[np.uint8]:
        decoded.append(source)
        return real(self, source)

    monkeypatch.setattr(ImageForm, "decode", counted)
    again = load(folder, size=8)
    assert (again.fingerprint, decoded) == (before.fingerprint, [])
    assert load(folder, size=7).fingerprint != before.fingerprint
    assert len(decoded) == 24
    (pixels_file,) = [p for p in cache(folder).glob("*/pixels.bin") if p.stat().st_size == 24 * 192]
    pixels_file.write_bytes(b"cut short")
    assert load(folder, size=8).fingerprint == before.fingerprint
    assert len(decoded) == 48
    path = folder / "cat" / "0.png"
    picture().save(path)
    os.utime(path, ns=(1, 1))  # whatever the clock's resolution
    assert load(folder, size=8).fingerprint != before.fingerprint
    assert not list(cache(folder).glob(".draft-*"))


def _decode_until_killed(folder: Path, begun: Connection) -> None:
    def stuck(self: ImageForm, source: Any) -> NDArray[np.uint8]:
        begun.send_bytes(b"!")
        time.sleep(600)
        raise AssertionError("it is killed before")

    with patch.object(ImageForm, "decode", stuck):
        load(folder, size=8)


def test_what_a_killed_decoding_has_begun_is_removed_by_the_next(folder: Path) -> None:
    here, there = FORK.Pipe()
    child = FORK.Process(target=_decode_until_killed, args=(folder, there))
    child.start()
    try:
        here.recv_bytes()
        (draft,) = cache(folder).glob(".draft-*")
        load(folder, size=7)
        assert draft.exists(), "its maker lives"
    finally:
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
    load(folder, size=7)
    assert draft.exists(), "nothing was written"
    load(folder, size=8)
    assert [path.name[0] for path in cache(folder).iterdir()].count(".") == 0


def cache(folder: Path) -> Path:
    return folder.parent / "cache" / "images"


def test_whoever_comes_second_uses_the_firsts_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = image_cache._decode

    def overtaken(*arguments: Any) -> dict[str, Any]:
        monkeypatch.setattr(image_cache, "_decode", real)
        load(folder)  # another process is done while this one decodes
        return real(*arguments)

    monkeypatch.setattr(image_cache, "_decode", overtaken)
    assert len(pixels(load(folder))) == 24
    assert len(list(cache(folder).iterdir())) == 1


def test_unreadable_images_are_named_or_skipped(folder: Path) -> None:
    bad = folder / "dog" / "2.JPG"
    bad.write_bytes(bad.read_bytes()[:-200])
    with pytest.raises(DataFileError, match=r"dog/2\.JPG: damaged .*runcated.*on_error: skip"):
        load(folder)
    assert not list(cache(folder).iterdir()), "a failed try leaves nothing"
    (folder / "owl" / "0.png").write_bytes(b"no image")
    for _ in range(2):  # decoded, and from the cache
        with pytest.warns(UserWarning, match=r"2 images cannot be read .*dog/2\.JPG: damaged"):
            dataset = load(folder, on_error="skip")
    good = expected_without(folder, bad, folder / "owl" / "0.png")
    assert pixels(dataset) == good
    assert len(good) == 22
    for path in (folder / "owl").iterdir():
        path.write_bytes(b"")
    with (
        pytest.raises(DataFileError, match="no image of class 'owl' is readable"),
        pytest.warns(UserWarning, match="9 images"),
    ):
        load(folder, on_error="skip")


def expected_without(folder: Path, *bad: Path) -> dict[bytes, int]:
    kept = {path: path.read_bytes() for path in bad}
    for path in bad:
        path.unlink()
    found = expected(folder, lambda image: image.convert("RGB"))
    for path, content in kept.items():
        path.write_bytes(content)
    return found


def test_modes_are_converted_or_refused(folder: Path) -> None:
    picture("L").save(folder / "cat" / "grey.png")
    picture("RGBA").save(folder / "cat" / "alpha.png")
    picture("L").convert("P").save(folder / "cat" / "palette.png")
    assert pixels(load(folder)) == expected(folder, lambda image: image.convert("RGB"))
    deep = np.full((10, 12), 40_000, np.uint16)
    Image.fromarray(deep).save(folder / "cat" / "deep.png")
    with pytest.raises(DataFileError, match=r"deep\.png: pixels of the mode I;16 have more than 8"):
        load(folder)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "newt").mkdir(), r"newt: no image in it .* remove the directory"),
        (lambda f: picture(size=(9, 9)).save(f / "cat" / "z.png"), r"z\.png: 9×9 pixels, .* size"),
        (lambda f: f.rename(f.parent / "else"), "No such file"),
        (lambda f: [(f / n).rename(f.parent / n) for n in CLASSES], "at least two; found none"),
        (lambda f: [(f / n).rename(f.parent / n) for n in CLASSES[1:]], "found cat/ alone"),
    ],
)
def test_bad_folders_are_refused(folder: Path, spoil: Callable[[Path], Any], words: str) -> None:
    spoil(folder)
    with pytest.raises(DataFileError, match=words):
        load(folder)


def test_a_test_folder_has_classes_of_its_own_only_if_they_are_known(folder: Path) -> None:
    test = folder.parent / "test"
    for name in ("dog", "owl"):
        (test / name).mkdir(parents=True)
        picture().save(test / name / "a.png")
    dataset = load(folder, test_path=str(test))
    assert dataset.test(0).labels.tolist() == [1, 2]
    (test / "fox").mkdir()
    picture().save(test / "fox" / "a.png")
    with pytest.raises(DataFileError, match="class 'fox' is not in"):
        load(folder, test_path=str(test))


def test_a_cache_that_cannot_be_written_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSWEEP_CACHE", str(folder / "cat" / "0.png"))
    with pytest.raises(DataFileError, match=r"images cannot be written: .* CALSWEEP_CACHE"):
        load(folder)


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
def test_tables_of_images_are_what_their_folder_is(folder: Path, form: str) -> None:
    files = sorted(folder.rglob("*.*"))
    labels = [CLASSES.index(path.parent.name) for path in files]
    images: list[Any] = [path.read_bytes() for path in files]
    named = form == "parquet"
    if named:  # as Hugging Face's datasets write them
        images = [{"bytes": image, "path": None} for image in images]
    table = pa.table({"image": images, "label": labels if named else [CLASSES[k] for k in labels]})
    if named:
        about = {"info": {"features": {"label": {"names": CLASSES, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
    path = folder.parent / f"pets.{'parquet' if named else 'arrow'}"
    if named:
        pq.write_table(table, path, row_group_size=5)
    else:
        make = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with make(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    dataset = load_dataset("image_table", {"path": str(path), "size": 8})
    assert (dataset.name, dataset.class_names) == ("pets", CLASSES)
    assert pixels(dataset) == pixels(load(folder, size=8))


def test_bad_tables_of_images_are_named(folder: Path) -> None:
    path = folder.parent / "pets.parquet"
    good = (folder / "cat" / "0.png").read_bytes()
    pq.write_table(pa.table({"image": [good, None] * 6, "label": ["a", "b"] * 6}), path)
    options = {"path": str(path)}
    with pytest.raises(DataFileError, match=r"pets\.parquet, row 1 .counted from 0.: damaged"):
        load_dataset("image_table", options)
    with pytest.raises(DataFileError, match="no target column 'kind'; columns: image, label"):
        load_dataset("image_table", options | {"target": "kind"})
    path.write_bytes(b"PAR1")
    with pytest.raises(DataFileError, match="not a readable Parquet"):
        load_dataset("image_table", options)


def test_class_names_come_with_a_torch_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(torch.utils.data.Dataset[Any]):
        classes = ("left", "right", "neither")

        def __len__(self) -> int:
            return 30

        def __getitem__(self, row: int) -> Any:
            return torch.full((2,), float(row)), row % 2

    import sys
    import types

    module = types.ModuleType("named_module")
    module.whole = Named  # type: ignore[attr-defined]
    module.part = lambda: torch.utils.data.Subset(Named(), range(20))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "named_module", module)
    for name in ("whole", "part"):
        found = load_dataset(f"named_module:{name}", {})
        assert found.class_names == ("left", "right", "neither")
    monkeypatch.setattr(Named, "classes", ("only",))  # does not fit: the labels name themselves
    assert load_dataset("named_module:whole", {}).class_names == ("0", "1")


class Noisy:
    """A torch dataset with a transform of its own for training rows."""

    def __init__(self, sign: float) -> None:
        self.sign = sign

    def __repr__(self) -> str:
        return f"Noisy({self.sign})"

    def __call__(self, row: torch.Tensor) -> torch.Tensor:
        return row + self.sign * torch.rand(row.shape)


class Transformed(torch.utils.data.Dataset[Any]):
    def __init__(self, sign: float = 0.0) -> None:
        self.train_transform = Noisy(sign) if sign else None

    def __len__(self) -> int:
        return 60

    def __getitem__(self, row: int) -> Any:
        return torch.tensor([row % 2 - 0.5, row / 60]), row % 2


def test_a_train_transform_changes_training_rows_alone_and_the_same_way_again() -> None:
    def run(sign: float, steps: int = 3) -> TrainingRun:
        dataset = load_dataset(f"{__name__}:Transformed", {"sign": sign})
        made = TrainingRun(
            make_method("standard", {"lr": 0.1}),
            dataset.split(PROTOCOLS["honest"], 0, held_out=False),
            model="mlp",
            model_options={"widths": (4,)},
            classes=2,
            config=TrainingConfig(epochs=3, batch_size=16, stop_on="none"),
            seed=0,
        )
        for _ in range(steps):
            made.run_epoch()
        return made

    plain, one, again = run(0.0), run(1.0), run(1.0)
    assert torch.equal(one.state.parameters, again.state.parameters)
    assert not torch.equal(one.state.parameters, plain.state.parameters)
    resumed = run(1.0, steps=0)
    resumed.load_state_dict(run(1.0, steps=1).state_dict())
    resumed.run_epoch()
    resumed.run_epoch()
    assert torch.equal(resumed.state.parameters, one.state.parameters)
    cohort = Cohort([run(1.0, steps=0), run(1.0, steps=0)])
    while cohort.active:
        cohort.run_epoch()
    assert torch.equal(cohort.runs[1].state.parameters, one.state.parameters)
    assert "train_transform" in next(iter(cohort.apart.values()))
    marks = {
        load_dataset(f"{__name__}:Transformed", {"sign": sign}).fingerprint
        for sign in (0.0, 1.0, 2.0)
    }
    assert len(marks) == 3


def test_a_train_transform_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="does not tell what it does"):
        described(lambda row: row)
    assert described(Noisy(2.0)) == "Noisy(2.0)"
