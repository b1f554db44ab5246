"""The examples in docstrings do what they show; what documents name is there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import calibration.calibrators
from calibration.metrics import top_label

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "cluster").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PATH = re.compile(r"(?<![\w/.-])(?:calibration|cluster|sweeps|tests)(?:/[\w.-]++)++/?+(?![$*<{])")


# That of ``sweeps`` runs a sweep: tests/sweeps/host/test_left_as_found.py has it.
@pytest.mark.parametrize("module", [top_label, calibration.calibrators])
def test_docstring_examples(module: object) -> None:
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_and_targets_in_documents_exist(document: Path) -> None:
    text = document.read_text()
    links = [document.parent / link for link in LINK.findall(text)]
    paths = [ROOT / path.rstrip(".") for path in PATH.findall(text)]
    assert [str(path) for path in (*links, *paths) if not path.exists()] == []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake (?=[a-z])(\w+)\b(?=`|\s+#)", text)) <= set(targets)
