"""The files of a release agree: versions, lower bounds, tools, templates."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from sweeps.cli.main import _parser

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS = {"ruff", "mypy"}


def pins(name: str) -> dict[str, Version]:
    """The versions that a constraints file names."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(package): Version(version) for package, version in pairs}


def lower_bounds() -> dict[str, Version]:
    extras = PROJECT["optional-dependencies"].values()
    found = map(
        Requirement, [*PROJECT["dependencies"], *(each for extra in extras for each in extra)]
    )
    bounded = ((each.name, str(each.specifier)) for each in found if each.specifier)
    return {canonicalize_name(name): Version(bound.removeprefix(">=")) for name, bound in bounded}


def test_the_minimum_environment_is_that_of_the_lower_bounds() -> None:
    bounds, minimum = lower_bounds(), pins("constraints-minimum.txt")
    assert {name: minimum.get(name) for name in bounds} == bounds


def test_the_tested_versions_are_allowed() -> None:
    bounds, tested = lower_bounds(), pins("constraints.txt")
    assert set(bounds) <= set(tested)
    assert [name for name, bound in bounds.items() if tested[name] < bound] == []


def test_the_first_page_names_every_extra_for_users() -> None:
    text = (ROOT / "docs" / "pages" / "index.md").read_text()
    table = text.partition("| extra | adds |")[2].partition("\n\n")[0]
    first = "".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE))
    for_users = set(PROJECT["optional-dependencies"]) - {"docs", "lint", "test"}
    assert set(re.findall(r"`(\w+)`", first)) == for_users


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert {PROJECT["version"], citation["version"], newest[1]} == {PROJECT["version"]}
    assert citation["license"] == PROJECT["license"]


def test_the_changelog_names_every_command() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    (commands,) = (a.choices for a in _parser()._actions if a.metavar == "COMMAND")
    assert commands is not None
    assert [name for name in commands if not re.search(rf"\b{name}\b", text)] == []


def test_hooks_before_a_commit_are_the_pinned_tools() -> None:
    """They are the environment's own, installed at the versions of constraints.txt."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    programs = {hook["entry"].split()[0] for hook in config["repos"][0]["hooks"]}
    assert programs == {f".venv/bin/{tool}" for tool in TOOLS}
    assert set(pins("constraints.txt")) >= TOOLS


def test_pull_requests_are_tested_with_every_python_that_is_claimed() -> None:
    claimed = {
        words[-1]
        for words in (each.split(" :: ") for each in PROJECT["classifiers"])
        if words[:2] == ["Programming Language", "Python"]
    }
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    everything, versions = workflow["jobs"]["all"], workflow["jobs"]["versions"]
    setups = [step for step in everything["steps"] if "setup-python" in step.get("uses", "")]
    legs = versions["strategy"]["matrix"]["include"]
    tested = {setup["with"]["python-version"] for setup in setups} | {leg["python"] for leg in legs}
    assert claimed
    assert claimed <= tested
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {leg["target"] for leg in legs} <= set(targets)


@pytest.mark.parametrize(
    ("tag", "heading", "code"),
    [
        ("v{}", "## [{}] - 2026-11-19", 0),
        ("v{}", "## [{}] - Unreleased", 1),
        ("v{}", "## [0.0.0] - 2026-11-19", 1),
        ("v9{}", "## [{}] - 2026-11-19", 1),
    ],
)
def test_only_a_tag_of_the_version_with_a_dated_entry_is_released(
    tag: str, heading: str, code: int, tmp_path: Path
) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (script,) = (
        step["run"]
        for step in workflow["jobs"]["build"]["steps"]
        if step.get("name", "").startswith("Compare the tag")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(heading.format(PROJECT["version"]) + "\n")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={"PATH": programs, "TAG": tag.format(PROJECT["version"])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/*.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_files_for_the_host_have_its_form(schema: str, files: str) -> None:
    found = list(map(str, ROOT.glob(files)))
    assert found
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *found]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_templates_of_issues_are_forms() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= set(form)
        assert all(field["attributes"]["label"] for field in form["body"])
