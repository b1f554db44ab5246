"""The notebooks: executes them without Jupyter, and makes pages of them.

    python docs/notebooks.py      # executes every notebook anew and keeps what it shows

A cell shows what it prints, and its last expression if that is one: a figure as PNG, what has
``_repr_html_`` as HTML, all else as text. That is what Jupyter would show of these notebooks.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent / "notebooks"

Notebook = dict[str, Any]


def executed(notebook: Notebook) -> Notebook:
    """The notebook with the outputs of its cells, executed in the current directory."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            outputs = _outputs("".join(cell["source"]), names, number)
            cell = cell | {"execution_count": number, "outputs": outputs}
        cells.append(cell)
    return notebook | {"cells": cells}


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append(_stream(printed.getvalue()))
    if value is not None:
        about = {"execution_count": number, "metadata": {}, "output_type": "execute_result"}
        found.append(about | {"data": _data(value)})
    return found


def _stream(text: str) -> dict[str, Any]:
    return {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}


def _data(value: Any) -> dict[str, Any]:
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=80, bbox_inches="tight")
        encoded = base64.b64encode(picture.getvalue()).decode()
        return {"image/png": encoded, "text/plain": [repr(value)]}
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    return data


def page(notebook: Notebook, name: str) -> tuple[str, dict[str, bytes]]:
    """The notebook as Markdown, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![What the cell shows]({picture})")
            elif "text/html" in data:
                parts.append(f'<div class="shown">\n{"".join(data["text/html"])}\n</div>')
            else:
                text = output.get("text") or data["text/plain"]
                parts.append(f"```text\n{''.join(text).rstrip()}\n```")
    return "\n\n".join(parts) + "\n", pictures


def read(path: Path) -> Notebook:
    """The notebook in a file."""
    found: Notebook = json.loads(path.read_text())
    return found


def main() -> None:
    """Execute every notebook anew."""
    for path in map(Path, sys.argv[1:] or sorted(DIRECTORY.glob("*.ipynb"))):
        place = path.resolve()
        with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
            done = executed(read(place))
        place.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n")
        print(f"{path.name}: {place.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
