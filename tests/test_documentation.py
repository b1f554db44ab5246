"""The examples in docstrings do what they show; what documents name is there."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from markdown.extensions.toc import slugify

import calibration.calibrators
import sweeps
from calibration import metrics, testing
from calibration.learners import LEARNERS
from calibration.methods import METHODS
from calibration.metrics import top_label
from sweeps.spec.schema import Spec

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "pages"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "cluster").rglob("*.md"), *PAGES.rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
ANCHORED = re.compile(r"\]\(((?!https?:)[^)#]*)#([^)]+)\)")
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
    assert "<code>&gt;&gt;&gt; probabilities" in (tmp_path / "reference/python.html").read_text()
    fetched = {page.name: FETCHED.findall(page.read_text()) for page in tmp_path.rglob("*.html")}
    assert {name: found for name, found in fetched.items() if found} == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_headings_that_exist(document: Path) -> None:
    """Also those of the README to pages, which the build of the site does not see."""
    lost = []
    for link, anchor in ANCHORED.findall(document.read_text()):
        target = document.parent / link if link else document
        if target.exists() and anchor not in anchors(target):
            lost.append(f"{link}#{anchor}")
    assert lost == []


def anchors(document: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {slugify(heading.replace("`", ""), "-") for heading in headings}


def test_it_is_said_which_command_makes_each_picture() -> None:
    told = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Pictures\n")[2].partition("\n## ")[0]
    )
    images = {path.name for path in (ROOT / ".github" / "images").iterdir()}
    assert {name for name in images if f"`{name}`" not in told} == set()
    drawn = set(
        re.findall(r"^def (\w+)\(\) -> Figure:", (ROOT / "docs" / "figures.py").read_text(), re.M)
    )
    assert {path.stem for path in PAGES.rglob("*.png")} == drawn


@pytest.mark.parametrize("module", [sweeps, metrics, calibration.calibrators, testing])
def test_the_python_page_has_every_public_function(module: ModuleType) -> None:
    """Those of single metrics are on the page of metrics."""
    shown = set(
        re.findall(r"^::: (\S+)$", (PAGES / "reference/python.md").read_text(), re.MULTILINE)
    )
    public = {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}
    assert public
    assert {f"{module.__name__}.{name}" for name in public - set(metrics.METRICS)} <= shown


def test_what_all_methods_take_is_explained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import hooks

    page = hooks.registry_page("methods")
    assert page.count("\nnumeric_inputs: standardised; ") == page.count("\nbackbone_lr: its ") == 1
    assert page.index("\nbackbone_lr: its ") < page.index("\n## ")
    headings = re.findall(r"^## `(.+)`$", page, re.MULTILINE)
    assert headings == [*LEARNERS, *METHODS]
    assert page.count("\nsource  ") == len(headings)


def test_every_key_of_a_spec_says_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import hooks

    page = hooks.spec_page()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if line[:3] == "| `"]
    keys = {cell[0].strip(" `"): cell[1].strip() for cell in cells}
    assert {len(cell) for cell in cells} == {4}
    assert set(Spec.model_fields) <= set(keys)
    assert keys["milestones"] == "list of number > 0 < 1"
    assert keys["datasets"] == "list of (name or string or mapping)"
    assert keys["equivalence"] == "mapping to number ≥ 0"
    vague = re.compile(r"\b(any|array|object)\b")
    assert {key: said for key, said in keys.items() if vague.search(said)} == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_and_targets_in_documents_exist(document: Path) -> None:
    text = document.read_text()
    links = [document.parent / link for link in LINK.findall(text) if not made(document, link)]
    paths = [ROOT / path.rstrip(".") for path in PATH.findall(text)]
    assert [str(path) for path in (*links, *paths) if not path.exists()] == []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake (?=[a-z])(\w+)\b(?=`|\s+#)", text)) <= set(targets)
