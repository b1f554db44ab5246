"""Which code is copied beside an exported model, and which becomes a requirement."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.export.bundling import REQUIRED, bundle


def installed(home: Path) -> None:
    """A distribution ``other-site`` with the module ``other_site``."""
    about = home / "other_site-1.5.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-site\nVersion: 1.5\n")
    (about / "RECORD").write_text("other_site.py,,\n")
    (home / "other_site.py").write_text("VALUE = 1\n")


@pytest.mark.parametrize("place", ["usr/lib/python3/dist-packages", "base/lib/site-packages"])
def test_packages_installed_outside_of_the_environment_are_requirements(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / place)
    own = tmp_path / "own_code"
    own.mkdir()
    (own / "uses_other_site.py").write_text("import other_site\n")
    for path in (tmp_path / place, own):
        monkeypatch.syspath_prepend(path)
    found = bundle(["uses_other_site"])
    assert [path.name for path in found.code] == ["calibration", "uses_other_site.py"]
    names = [line.partition("==")[0] for line in found.requirements]
    assert names == sorted([*REQUIRED, "other-site"])
    assert "other-site==1.5" in found.requirements


def test_files_that_are_no_python_are_copied_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("import yaml\n")
    (package / "compiled.py").write_bytes(b"\0\1")
    (package / "template.py").write_text("import {{ name }}\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = bundle(["own_package"])
    assert package in found.code
    assert any(line.lower().startswith("pyyaml==") for line in found.requirements)
