"""The README's examples, found by the file name in their first line."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def example(file: str) -> str:
    """The code block that begins with ``# file``."""
    (found,) = (code for _, code in BLOCK.findall(README.read_text()) if _is(code, file))
    return str(found)


def typed_in(words: str) -> str:
    """The Python block with these words that is no file's content."""
    found = BLOCK.findall(README.read_text())
    blocks = [code for kind, code in found if kind == "python" and not code.startswith("# ")]
    (code,) = (block for block in blocks if words in block)
    return str(code)


def _is(code: str, file: str) -> bool:
    return code.splitlines()[0] == f"# {file}"
