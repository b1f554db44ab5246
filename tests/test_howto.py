"""The how-to pages and the notebooks do what they show, from top to bottom."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sweeps.cli.main import _parser
from tests.executed import at, execute
from tests.pages import BLOCK, PAGES
from tests.tracked import put_database

pytestmark = pytest.mark.slow

ROOT = PAGES.parent.parent
HOW_TO = PAGES / "how-to"
ON_ONE_TABLE = ("csv", "trees", "report", "mlflow", "export")
"""Pages that go on with the table and the sweep of the first, in this order."""
ON_ONE_FOLDER = ("images", "backbone")
"""The same with the pictures of the first."""
ON_THEIR_OWN = ("sweep", "logits", "rare", "groups", "method", "nightly")
# tests/sweeps/cli/test_own.py runs ``torch`` on Ray, tests/cluster/test_jobs.py ``elsewhere``.
IN_OTHER_TESTS = ("torch", "elsewhere")
LARGEST_NOTEBOOK = 200 * 1024
SLURM = ROOT / "cluster" / "slurm" / "README.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "cluster").rglob("*.md"), *PAGES.rglob("*.md")])
INLINE = re.compile(r"`calsweep ([a-z]+)\b([^`]*)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    put_database(place / "runs")
    return place


@pytest.mark.parametrize("page", ON_ONE_TABLE)
def test_pages_on_one_table(page: str, directory: Path) -> None:
    if page != "csv":
        assert (directory / "runs" / "churn").exists(), "run the whole module: csv comes first"
    execute(HOW_TO / f"{page}.md", directory)


@pytest.mark.parametrize("page", ON_ONE_FOLDER)
def test_pages_on_one_folder(page: str, directory: Path) -> None:
    if page != "images":
        assert (directory / "runs" / "shapes").exists(), "run the whole module: images comes first"
    execute(HOW_TO / f"{page}.md", directory)


@pytest.mark.parametrize("page", ON_THEIR_OWN)
def test_pages_on_their_own(page: str, tmp_path: Path) -> None:
    put_database(tmp_path / "runs")
    put_database(tmp_path / "nights" / "small")
    execute(HOW_TO / f"{page}.md", tmp_path)


def test_every_page_is_executed_and_ends_in_a_decision() -> None:
    pages = {path.stem: path.read_text() for path in HOW_TO.glob("*.md")}
    assert set(pages) == {*ON_ONE_TABLE, *ON_ONE_FOLDER, *ON_THEIR_OWN, *IN_OTHER_TESTS}
    pages["slurm"] = SLURM.read_text()  # tests/cluster/test_slurm.py types its commands on a Slurm
    assert {name for name, text in pages.items() if "\n## The decision\n" not in text} == set()


def commands() -> Iterator[tuple[str, list[str]]]:
    for document in DOCUMENTS:
        for language, text in BLOCK.findall(document.read_text()):
            for line in text.splitlines() if language in ("sh", "console") else ():
                if line.startswith("calsweep "):
                    yield f"{document.name}: {line}", shlex.split(line, comments=True)[1:]


def test_every_command_in_the_documents_is_one() -> None:
    found = list(commands())
    assert len(found) > 40
    wrong = []
    for shown, words in found:
        try:
            _parser().parse_args(words)
        except SystemExit:
            wrong.append(shown)
    assert wrong == []


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a command and of the commands below it."""
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(*(options_of(below) for below in action.choices.values()))
    return found


def test_commands_in_sentences_have_the_options_that_are_said() -> None:
    (commands,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    known = {name: options_of(parser) for name, parser in commands.choices.items()}
    found = [
        (document.name, command, set(OPTION.findall(rest)))
        for document in DOCUMENTS
        for command, rest in INLINE.findall(BLOCK.sub("", document.read_text()))
        if command != "setup"  # a script's message
    ]
    assert len(found) > 60
    assert [said for said in found if not said[2] <= known.get(said[1], set())] == []


def notebooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["posthoc", "sweep"])
def test_notebooks_show_what_they_show_when_executed(name: str, tmp_path: Path) -> None:
    """The same kinds of outputs from the same cells; numbers are a machine's own."""
    module = notebooks()
    path = module.DIRECTORY / f"{name}.ipynb"
    assert path.stat().st_size < LARGEST_NOTEBOOK
    kept = module.read(path)
    put_database(tmp_path / "runs")
    with at(tmp_path):
        again = module.executed(kept)
    assert [kinds(cell) for cell in again["cells"]] == [kinds(cell) for cell in kept["cells"]]
    assert any(kinds(cell) for cell in kept["cells"])


def kinds(cell: dict) -> list[list[str]]:
    return [sorted(output.get("data", ["stream"])) for output in cell.get("outputs", [])]
