"""Damaged and hostile NPZ files: each is refused by one ``ValueError`` that names the file."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.data import load_dataset
from calibration.data.npz import NpzFile
from calibration.data.predictions import read_labelled_predictions, read_predictions
from calibration.memory import available_memory
from tests.faults.bulky import npz_announcing

Z = np.random.default_rng(0).normal(size=(40, 3))
Y = np.arange(40) % 3
NAMES = np.array(["ant", "bee", "cät"])
ARRAYS: dict[str, NDArray[Any]] = {"logits": Z, "labels": Y, "inputs": Z, "class_names": NAMES}


def packed(members: dict[str, bytes], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def array(values: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


def headed(text: str, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    """An array with a header of one's own."""
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode("latin1") + content


MEMBERS = {f"{name}.npy": array(values) for name, values in ARRAYS.items()}
DEFLATED = {"compression": zipfile.ZIP_DEFLATED}
WHOLE = [packed(MEMBERS), packed(MEMBERS, **DEFLATED)]


def mutant(chance: random.Random) -> bytes:
    """A good file with bytes flipped, replaced, cut off, or taken from another."""
    content = bytearray(chance.choice(WHOLE))
    at = chance.randrange(len(content))
    match chance.randrange(4):
        case 0:
            for _ in range(chance.randrange(1, 6)):
                content[chance.randrange(len(content))] = chance.randrange(256)
        case 1:
            del content[at:]
        case 2:
            content[at : at + chance.randrange(50)] = chance.randbytes(chance.randrange(60))
        case _:
            other = chance.choice(WHOLE)
            content[at:] = other[chance.randrange(len(other)) :]
    return bytes(content)


def outcome(read: Callable[[Path], Any], path: Path) -> Any:
    """What was read, or the reason why it was not."""
    try:
        return read(path)
    except ValueError as error:
        return str(error)


def test_mutants_are_read_right_or_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    chance = random.Random(7)
    refused = 0
    for _ in range(300):
        path.write_bytes(mutant(chance))
        for read in (read_labelled_predictions, lambda p: load_dataset("arrays", {"path": str(p)})):
            found = outcome(read, path)
            if isinstance(found, str):
                assert found.startswith(f"{path}: ")
                refused += 1
            elif isinstance(found, tuple):  # a checksum guards the content
                assert np.array_equal(found[0].logits, Z)
    assert refused > 300


FLOATS = "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }"
LETTER = "{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }"
HOSTILE: dict[str, tuple[dict[str, bytes], str]] = {
    "text": ({"logits.npy": b"hello"}, "'logits' is not an array"),
    "empty": ({"logits.npy": b""}, "'logits' is not an array"),
    "pickle": ({"logits.npy": b"\x80\x04N."}, "'logits' is not an array"),
    "objects": ({"logits.npy": array(Z.astype(object))}, "'logits' holds objects"),
    "no Python": ({"logits.npy": headed("{'a': (")}, "header of 'logits' is damaged"),
    "deep": ({"logits.npy": headed("(" * 5000)}, "header of 'logits' is damaged"),
    "long": ({"logits.npy": headed(" " * 60_000)}, "header of 'logits' is damaged"),
    "a list": ({"logits.npy": headed(FLOATS % "[40, 3]")}, "header of 'logits' is damaged"),
    "version": ({"logits.npy": headed("{}", version=b"\3\0")}, "'logits' has the format (3, 0)"),
    "shape": ({"logits.npy": headed(FLOATS % "(41, 3)", Z.tobytes())}, "does not fit"),
    "too much": ({"logits.npy": array(Z) + b"more"}, "does not fit"),
    "negative": ({"logits.npy": headed(FLOATS % "(-40, -3)", Z.tobytes())}, "does not fit"),
    "petabytes": ({"logits.npy": headed(FLOATS % f"({10**12}, 1000)")}, "does not fit"),
    "no size": (
        {"labels.npy": headed("{'descr': '<U0', 'fortran_order': False, 'shape': (999999999,)}")},
        "does not fit",
    ),
    "letters": ({"class_names.npy": headed(LETTER, b"\xff" * 4)}, "texts of 'class_names' are"),
    "bytes": ({"class_names.npy": array(np.array([b"\xff", b"b", b"c"]))}, "are not UTF-8"),
    "one name": ({"class_names.npy": array(np.array("ant"))}, "a text for each class"),
    "twice": ({"logits": array(Z)}, "it holds 2 arrays called 'logits'"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("options", [{}, DEFLATED], ids=["stored", "deflated"])
def test_what_is_no_plain_array_is_said(tmp_path: Path, case: str, options: Any) -> None:
    members, words = HOSTILE[case]
    path = tmp_path / "bad.npz"
    path.write_bytes(packed(MEMBERS | members, **options))
    with pytest.raises(ValueError, match=r"bad\.npz: ") as refusal:
        read_labelled_predictions(path)
    assert words in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_cannot_be_unpacked_piece_by_piece_is_refused(
    tmp_path: Path, compression: int
) -> None:
    (tmp_path / "bad.npz").write_bytes(packed(MEMBERS, compression=compression))
    with pytest.raises(ValueError, match="compressed in a way that NumPy does not use"):
        NpzFile(tmp_path / "bad.npz").arrays(["logits"])


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    path.write_bytes(npz_announcing(2**50, stored=2**20))
    assert path.stat().st_size < 10_000
    with pytest.raises(
        ValueError, match=r"bomb\.npz: its arrays unpack to 1\.126 PB, .* of memory are available"
    ):
        read_labelled_predictions(path)
    path.write_bytes(npz_announcing(2**24, stored=2**20))
    with pytest.raises(ValueError, match=r"bomb\.npz: not a readable NPZ.*logits"):
        read_labelled_predictions(path)


def test_less_than_is_there_is_announced(tmp_path: Path) -> None:
    """By the directory and by the header alike: the checksum tells."""
    (tmp_path / "bad.npz").write_bytes(npz_announcing(2**19, stored=2**20))
    with pytest.raises(ValueError, match=r"bad\.npz: not a readable NPZ file.*CRC"):
        read_predictions(tmp_path / "bad.npz")


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    members = MEMBERS | {"notes.npy": array(Z.astype(object)), "README.txt": b"hello"}
    (tmp_path / "good.npz").write_bytes(packed(members))
    assert read_labelled_predictions(tmp_path / "good.npz")[0].class_names == tuple(NAMES)
    (tmp_path / "unlabelled.npz").write_bytes(packed(members | {"labels.npy": b"nonsense"}))
    assert np.array_equal(read_predictions(tmp_path / "unlabelled.npz").logits, Z)


def test_every_layout_of_an_array_comes_back_as_it_was(tmp_path: Path) -> None:
    whole = np.arange(24).reshape(2, 3, 4)
    arrays: dict[str, Any] = {
        "fortran": np.asfortranarray(whole),
        "other_order": whole.astype(">i4"),
        "nothing": np.empty((0, 3)),
        "alone": np.array(3.5),
        "texts": np.array(["ä", "", "\U0001f600"]).astype(">U3"),
        "truths": whole % 2 == 0,
    }
    np.savez_compressed(tmp_path / "good.npz", **arrays)
    found = NpzFile(tmp_path / "good.npz").arrays(arrays)
    for name, values in arrays.items():
        assert np.array_equal(found[name], values), name
        assert found[name].shape == values.shape
    np.savez(tmp_path / "bytes.npz", texts=np.array([b"a"])[:0])
    assert NpzFile(tmp_path / "bytes.npz").arrays(["texts"])["texts"].shape == (0,)


def test_there_is_some_memory() -> None:
    assert 2**20 < available_memory() < 2**50


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b"], ids=["name", "path", "nul"])
def test_names_that_no_file_can_have_are_one_message(tmp_path: Path, name: str) -> None:
    for read in (read_predictions, NpzFile):
        for suffix in (".npz", ".csv"):
            with pytest.raises(ValueError, match=r"cannot be read|no such file"):
                read(tmp_path / f"{name}{suffix}")
