"""What travels to another machine, what stays here, and what the two must agree on."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.errors import UserError
from sweeps.ray_backend import handshake
from sweeps.ray_backend.handshake import Handshake
from sweeps.ray_backend.searcher import weight_of
from sweeps.ray_backend.user_code import PACKAGE_LIMIT, copy, copy_together, local_modules
from sweeps.spec.outline import outline
from sweeps.store import Store, StoreError


def project(directory: Path) -> Path:
    files = {
        "losses.py": "import helpers\nimport torch\nfrom pack.inner import thing\n",
        "helpers.py": "import numpy\n",
        "pack/__init__.py": "",
        "pack/inner.py": "from pack import deeper\nthing = 1\n",
        "pack/deeper.py": "",
        "pack/words.txt": "read by deeper",
        "pack/__pycache__/x.pyc": "",
        "unrelated.py": "",
        ".git/config": "",
        "runs/records/x": "",
        "data/rows.csv": "a,b\n1,2\n",
    }
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def test_the_modules_a_spec_names_travel_with_those_they_import(tmp_path: Path) -> None:
    written = {
        "methods": {"mine": {"method": "losses:Mine", "lr": 0.1}, "other": {"method": "torch:nn"}},
        "tracking": "http://host:5000",
        "datasets": [{"name": "table", "path": "a:b"}, "blobs-1.7"],
    }
    here = project(tmp_path / "here")
    names = local_modules(written, here)
    assert names == ["helpers.py", "losses.py", "pack"]
    copy(names, here, tmp_path / "there")
    found = {str(p.relative_to(tmp_path / "there")) for p in (tmp_path / "there").rglob("*.*")}
    assert found == {
        *("helpers.py", "losses.py", "pack/__init__.py", "pack/inner.py", "pack/deeper.py"),
        "pack/words.txt",
    }


def test_files_keep_their_places_to_each_other(tmp_path: Path) -> None:
    for name in ("project/specs/a.yaml", "project/data/rows.csv"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    rows = tmp_path / "project/specs/../data/rows.csv"
    spec = copy_together(tmp_path / "project/specs/a.yaml", [rows], tmp_path / "there")
    assert spec == Path("specs/a.yaml")
    assert (tmp_path / "there/specs/../data/rows.csv").read_text() == "project/data/rows.csv"


def test_a_link_is_sent_as_the_file_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "far.csv").write_text("rows")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/spec.yaml").write_text("spec")
    (tmp_path / "project/my.csv").symlink_to(tmp_path / "far.csv")
    given = [tmp_path / "project/my.csv"]
    assert copy_together(tmp_path / "project/spec.yaml", given, tmp_path / "there").name
    assert (tmp_path / "there/my.csv").read_text() == "rows"


def test_our_own_packages_stay_and_packages_without_init_travel(tmp_path: Path) -> None:
    for name in ("calibration/__init__.py", "mine.py", "spaced/losses.py", "broken.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("import calibration\n")
    (tmp_path / "broken.py").write_text("def (")
    written = {"methods": ["mine:A", "spaced.losses:B", "calibration.methods:C", "broken:D"]}
    assert local_modules(written, tmp_path) == ["broken.py", "mine.py", "spaced"]


def test_nothing_is_written_outside_the_directory_that_is_sent(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/inside.txt").write_text("")
    for name in ("../outside.txt", str(tmp_path / "outside.txt")):
        with pytest.raises(UserError, match="is outside"):
            copy([name], tmp_path / "here", tmp_path / "there/sent")
    copy([str(tmp_path / "here/inside.txt")], tmp_path / "here", tmp_path / "there/sent")
    found = [p.name for p in (tmp_path / "there").rglob("*") if p.is_file()]
    assert found == ["inside.txt"]


def test_more_than_ray_takes_is_refused_with_the_largest_named(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with (tmp_path / "here/big.py").open("wb") as big:
        big.truncate(PACKAGE_LIMIT + 1)
    with pytest.raises(UserError, match=r"at most 100 MB; the largest: big\.py \(100 MB\)"):
        copy(["big.py"], tmp_path / "here", tmp_path / "there")
    with pytest.raises(UserError, match=r"none\.py: no such file"):
        copy(["none.py"], tmp_path / "here", tmp_path / "there")


def test_data_of_another_machine_is_not_looked_for_here(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"

    def write(where: str) -> None:
        data = f"{{name: table, path: {where}, target: b}}"
        path.write_text(f"name: x\ndatasets: [{data}]\nmethods: [standard]\n")

    write("/only/on/the/cluster.csv")
    assert outline(path).absent == ["table"]
    write("rows.csv")
    rows = "".join(f"{i},{i % 2}\n" for i in range(200))
    (tmp_path / "rows.csv").write_text(f"a,b\n{rows}")
    assert outline(path).absent == []
    assert outline(path).files == [tmp_path / "rows.csv"]
    for data in ("blobs-1.7", "{name: table, path: /elsewhere.csv, target: b}"):
        path.write_text(f"name: x\ndatasets: [{data}]\nmethods: [nonsense]\n")
        with pytest.raises(UserError, match="nonsense"):
            outline(path)


def test_a_worker_that_does_not_share_the_store_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "_PATIENCE_SECONDS", 0.1)
    begun = Handshake.begin(Store(tmp_path / "shared"), "sweep")
    begun.complete(Store(tmp_path / "shared"), "10.0.0.2")
    with pytest.raises(StoreError, match=r"node 10\.0\.0\.3 does not see the store .*other"):
        begun.complete(Store(tmp_path / "other"), "10.0.0.3")
    # An earlier driver's mark, on a disk that was shared once, is not enough.
    Handshake.begin(Store(tmp_path / "stale"), "sweep")
    with pytest.raises(StoreError, match="does not see"):
        begun.complete(Store(tmp_path / "stale"), "10.0.0.3")
    older = begun._replace(versions=("Python 3.11", "calsweep 0.0.1", "torch 2.0"))
    with pytest.raises(StoreError, match=r"driver has Python 3\.11, calsweep 0\.0\.1"):
        older.complete(Store(tmp_path / "shared"), "10.0.0.2")


@pytest.mark.parametrize(
    ("cause", "weight"),
    [
        ("The actor died because its node has died. Node Id: 1f", 0.02),
        ("the actor's node was terminated unexpectedly: health check failed", 0.02),
        ("The actor is temporarily unavailable: RpcError: Socket closed", 0.5),
        ("Worker unexpectedly exits with a connection error code 2.", 1.0),
        ("for no known reason", 1.0),
    ],
)
def test_a_lost_machine_is_not_held_against_the_trial(cause: str, weight: float) -> None:
    assert weight_of(cause) == weight
