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


def python_without_a_file() -> list[str]:
    """The Python blocks that are no file's content: to be typed in."""
    found = BLOCK.findall(README.read_text())
    return [code for kind, code in found if kind == "python" and not code.startswith("# ")]


def _is(code: str, file: str) -> bool:
    return code.splitlines()[0] == f"# {file}"
