"""The examples in docstrings do what they show; what documents name is there."""

from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import calibration.calibrators
from calibration.metrics import top_label

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "pages"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "cluster").rglob("*.md"), *PAGES.rglob("*.md")])
HOP = re.compile(r"^ *(\d+) (\S+) → (\S+) +(\w+)", re.MULTILINE)
MOST_HOPS = 30
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
FETCHED = re.compile(
    r"""<(?:script|img|iframe|link rel="?(?:stylesheet|preload))[^>]*https?:[^>]*>"""
)
PATH = re.compile(r"(?<![\w/.-])(?:calibration|cluster|sweeps|tests)(?:/[\w.-]++)++/?+(?![$*<{])")


# That of ``sweeps`` runs a sweep: tests/sweeps/host/test_left_as_found.py has it.
@pytest.mark.parametrize("module", [top_label, calibration.calibrators])
def test_docstring_examples(module: object) -> None:
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def made(document: Path, link: str) -> bool:
    """Whether a page links to one that is generated; the build of the site finds broken ones."""
    place = (document.parent / link).resolve()
    return PAGES in document.parents and place.is_relative_to(PAGES) and not place.exists()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        [*command, "--config-file", str(ROOT / "docs" / "mkdocs.yml")],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    for page in ("index", "reference/methods", "reference/spec", "built/architecture"):
        assert "<h1" in (tmp_path / f"{page}.html").read_text()
    fetched = {page.name: FETCHED.findall(page.read_text()) for page in tmp_path.rglob("*.html")}
    assert {name: found for name, found in fetched.items() if found} == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_and_targets_in_documents_exist(document: Path) -> None:
    text = document.read_text()
    links = [document.parent / link for link in LINK.findall(text) if not made(document, link)]
    paths = [ROOT / path.rstrip(".") for path in PATH.findall(text)]
    assert [str(path) for path in (*links, *paths) if not path.exists()] == []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake (?=[a-z])(\w+)\b(?=`|\s+#)", text)) <= set(targets)


def known_names(module: str) -> set[str]:
    """What a module of ``sweeps``, or a file by its whole path, defines or imports."""
    path = ROOT / module if module.endswith(".py") else ROOT / "sweeps" / f"{module}.py"
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_the_walk_from_spec_to_report_is_as_short_as_it_is_said_to_be() -> None:
    """Both ends of a hop know the value that is handed over."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    hops = HOP.findall(text)
    assert [int(number) for number, *_ in hops] == list(range(1, len(hops) + 1))
    assert f"there are {len(hops)}" in text
    assert len(hops) <= MOST_HOPS
    unknown = [
        (value, module)
        for _, giver, taker, value in hops
        for module in (giver, taker)
        if value not in known_names(module)
    ]
    assert unknown == []
