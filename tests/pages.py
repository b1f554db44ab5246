"""The examples in the documentation, found by the file name in their first line."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parent.parent / "docs" / "pages"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """The language and the text of every code block."""
    texts = (page.read_text() for page in sorted(PAGES.rglob("*.md")))
    return [block for text in texts for block in BLOCK.findall(text)]


def example(file: str) -> str:
    """The code block that begins with ``# file``."""
    (found,) = (code for _, code in blocks() if code.splitlines()[0] == f"# {file}")
    return found


def typed_in(words: str) -> str:
    """The Python block with these words that is no file's content."""
    python = [code for kind, code in blocks() if kind == "python" and not code.startswith("# ")]
    (code,) = (block for block in python if words in block)
    return code
