"""Nights of other versions: refused by the file's name, never taken for no nights at all."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from sweeps.cli.main import main
from sweeps.nightly.archive.baseline import accept, read_baseline
from sweeps.nightly.archive.nights import FORMAT_ENTRY, NIGHTS_FORMAT, Nights
from sweeps.store import StoreError
from tests.sweeps.nightly.kit import SEARCHED, Scene, reference_takes
from tests.sweeps.nightly.report.test_webhook import server

FIRST, SECOND = "2026-01-05", "2026-01-06"
OLDER, NEWER = NIGHTS_FORMAT - 1, NIGHTS_FORMAT + 1


@pytest.fixture(scope="module")
def one_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite with one night; to be copied."""
    scene = Scene(tmp_path_factory.mktemp("one night"))
    scene.write_suite(searched=SEARCHED)
    with pytest.MonkeyPatch.context() as patch:
        reference_takes(patch, 1.0)
        assert scene.run(FIRST).first
    return scene.directory


@pytest.fixture
def scene(one_night: Path, tmp_path: Path) -> Scene:
    shutil.copytree(one_night, tmp_path, dirs_exist_ok=True)
    return Scene(tmp_path)


def json_of(path: Path, number: int) -> None:
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": number}))


def parquet_of(path: Path, number: int) -> None:
    table = pq.read_table(path)
    if number == 1:  # as it was written then
        table.to_pandas().to_parquet(path, index=False)
    else:
        named = {**table.schema.metadata, FORMAT_ENTRY: str(number).encode()}
        pq.write_table(table.replace_schema_metadata(named), path)


KINDS: dict[str, Callable[[Path, int], None]] = {
    "baseline.json": json_of,
    "history.parquet": parquet_of,
    f"{FIRST}/night.json": json_of,
}


def aged(nights: Nights, name: str, number: int, *, alone: bool) -> Path:
    """One of a suite's files as another version's; ``alone``, the others are gone."""
    path = nights.directory / name
    KINDS[name](path, number)
    for other in KINDS.keys() - {name} if alone else ():
        (nights.directory / other).unlink()
    return path


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("number", [OLDER, NEWER])
@pytest.mark.parametrize("name", KINDS)
def test_what_another_version_left_is_refused_by_name_and_left_untouched(
    scene: Scene, name: str, number: int, alone: bool
) -> None:
    path = aged(scene.nights, name, number, alone=alone)
    before = contents(scene.directory)
    age, upgrade = ("an older", "") if number < NIGHTS_FORMAT else ("a newer", "upgrade this one, ")
    expected = re.escape(
        f"{path} was made by {age} version of calsweep (format {number}; this one reads "
        f"{NIGHTS_FORMAT}): {upgrade}"
    )
    for call in (
        lambda: scene.run(SECOND),
        lambda: read_baseline(scene.nights),
        lambda: accept(scene.nights, None, "never mind"),
    ):
        with pytest.raises(StoreError, match=expected + ".*start over in another directory"):
            call()
    assert scene.trained == []
    assert contents(scene.directory) == before


@pytest.mark.parametrize("name", KINDS)
def test_the_commands_exit_with_1_and_the_webhook_hears_of_it(
    scene: Scene, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = aged(scene.nights, name, OLDER, alone=True)
    suite, nights = (
        str(scene.directory / "small.yaml"),
        ["--nights", str(scene.directory / "nights")],
    )
    with server(200) as (url, received):
        assert main(["nightly", suite, "--night", SECOND, "--webhook", url, *nights]) == 1
    said = f"{path} was made by an older version of calsweep"
    assert said in capfd.readouterr().err
    (one,) = received
    assert one["message"]["verdict"] == "incomplete"
    assert f"The night ended without a verdict: {said}" in one["message"]["sentences"][0]
    assert not scene.nights.place(SECOND).exists()
    for words in (["show"], ["accept", "--reason", "x"]):
        assert main(["baseline", *words, suite, *nights]) == 1
        assert said in capfd.readouterr().err


def test_another_directory_is_the_remedy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    aged(scene.nights, "baseline.json", OLDER, alone=False)
    with pytest.raises(StoreError) as caught:
        scene.run(SECOND)
    assert f"calsweep nightly {scene.directory / 'small.yaml'} --nights DIR" in str(caught.value)
    reference_takes(monkeypatch, 1.0)
    scene.nights = Nights(scene.directory / "other", "small")
    assert scene.run(SECOND).first


def test_all_files_of_a_night_name_the_same_format(scene: Scene) -> None:
    directory = scene.nights.directory
    for name in ("baseline.json", f"{FIRST}/night.json"):
        assert json.loads((directory / name).read_bytes())["format"] == NIGHTS_FORMAT
    for name in ("baseline.parquet", "history.parquet", f"{FIRST}/results.parquet"):
        entry = pq.read_schema(directory / name).metadata[FORMAT_ENTRY]
        assert int(entry) == NIGHTS_FORMAT


def test_damage_is_told_from_age(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    reference_takes(monkeypatch, 1.0)
    (scene.nights.directory / "history.parquet").write_bytes(b"half a file")
    assert scene.run(SECOND).overall == "identical"
    nights = pd.read_parquet(scene.nights.directory / "history.parquet")["night"]
    assert set(nights) == {FIRST, SECOND}
