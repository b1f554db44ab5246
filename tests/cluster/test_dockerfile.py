"""The image, as far as it can be checked without a Docker engine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "cluster" / "Dockerfile"


def steps() -> list[tuple[str, str]]:
    """The instructions, comments and line breaks taken out."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def copied() -> list[str]:
    return [word for step, rest in steps() if step == "COPY" for word in rest.split()[:-1]]


def test_everything_copied_exists_and_is_not_ignored(tmp_path: Path) -> None:
    ignored = (ROOT / "cluster" / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    for source in copied():
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied())


def test_the_image_has_all_that_the_package_is_built_from(tmp_path: Path) -> None:
    for source in copied():
        subprocess.run(["cp", "-r", str(ROOT / source), str(tmp_path)], check=True)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert (tmp_path / project["readme"]).is_file()
    assert all((tmp_path / name).is_file() for name in project["license-files"])
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for pattern in included["packages"]["find"]["include"]:
        assert (tmp_path / pattern.rstrip("*") / "__init__.py").is_file()
    (extras,) = (rest.split("=")[1] for step, rest in steps() if rest.startswith("EXTRAS="))
    assert extras in project["optional-dependencies"]


def test_it_runs_as_nobody_with_pinned_packages_and_a_token() -> None:
    found = steps()
    assert found[0] == ("FROM", "python:3.11-slim-bookworm")
    users = [(index, rest) for index, (step, rest) in enumerate(found) if step == "USER"]
    assert [rest for _, rest in users] == ["1000:1000"]
    assert all(index < users[0][0] for index, (step, _) in enumerate(found) if step == "RUN")
    (install,) = (rest for step, rest in found if "--constraint constraints.txt" in rest)
    assert '".[${EXTRAS}]"' in install
    assert ("ENV", "RAY_AUTH_MODE=token") in found
    assert ("ENV", "RAY_USAGE_STATS_ENABLED=0 MLFLOW_DISABLE_TELEMETRY=true") in found
    last = [rest for step, rest in found if step == "RUN"][-1]
    assert "ray --version" in last, "a build that cannot start Ray fails"
    assert "calsweep --help" in last
