"""What MkDocs calls while it builds the site: the pages that are made from the program itself.

The reference is printed by the code that the commands use, so that it cannot say anything else;
documents of the repository become pages, so that nothing is written twice.
"""

from __future__ import annotations

import argparse
import io
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import notebooks
from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from rich.console import Console

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
WIDTH = 96
DOCUMENTS = {
    "ARCHITECTURE.md": "built/architecture.md",
    "cluster/SCALE.md": "built/scale.md",
    "SECURITY.md": "built/security.md",
    "CHANGELOG.md": "built/changes.md",
    "CONTRIBUTING.md": "built/contributing.md",
    "cluster/README.md": "how-to/cluster.md",
    "cluster/mlflow/README.md": "how-to/mlflow-server.md",
    "cluster/schedules/README.md": "how-to/nights.md",
    "cluster/slurm/README.md": "how-to/slurm.md",
}
"""The documents of the repository that are pages of the site."""
PAGES, NOTEBOOKS, IMAGES = "docs/pages", "docs/notebooks", ".github/images"
LINK = re.compile(r"(!?\[[^\]]+\])\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLOOR = re.compile(r'subgraph \w+\["(.+?)"\]\n(.*?)^  end$', re.MULTILINE | re.DOTALL)
NODE = re.compile(r'(\w+)\["?([^"\]]+)"?\]')
INCLUDED = re.compile(r"^<!-- README\.md: (.+) -->$", re.MULTILINE)
LISTED = re.compile(r"<!-- names: (\w+) -->")
ARROW = re.compile(r"^ *(\w+)(?:\[[^\]]+\])? --> (\w+)", re.MULTILINE)
COLUMNS = "``` {.text .columns}"
"""Begins what a terminal prints in columns: style.css lets it scroll instead of wrapping it."""
ROW = """\
All keys but these are [hyperparameters of the row's method](methods.md): a value, or
[a range to search](../how-to/sweep.md#the-format)."""
MANY = 10
"""Values that fit into a cell of a table."""
NAMED_IN = {
    "datasets": "datasets",
    "model": "models",
    "method": "methods",
    "calibrators": "calibrators",
    "sampler": "samplers",
}
"""Keys of a spec and the pages of what they name."""
REGISTRIES = ("methods", "calibrators", "metrics", "datasets", "models", "samplers")


class Doctests(Preprocessor):
    """The examples of docstrings as code: Markdown takes ``>>>`` for three quotations."""

    def run(self, lines: list[str]) -> list[str]:
        """Indent every example, from its first prompt to the next empty line."""
        found, inside = [], False
        for line in lines:
            inside = bool(line.strip()) and (inside or line.startswith(">>> "))
            found.append(f"    {line}" if inside else line)
        return found


class DoctestExtension(Extension):
    """Read docstrings with ``Doctests``, after fenced blocks have been put aside."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Called by Markdown."""
        md.preprocessors.register(Doctests(md), "doctests", 20)


def on_config(config: MkDocsConfig) -> None:
    """Let Markdown show doctests."""
    config.markdown_extensions.append(DoctestExtension())  # type: ignore[arg-type]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    for path, content in pictures():
        files.append(File.generated(config, path, content=content))
    return files


def pictures() -> Iterator[tuple[str, bytes]]:
    """Every picture: its path in the site and its content."""
    for image in (ROOT / IMAGES).iterdir():
        yield f"images/{image.name}", image.read_bytes()
    for path in notebooks.DIRECTORY.glob("*.ipynb"):
        _, found = notebooks.page(notebooks.read(path), path.stem)
        for name, content in found.items():
            yield f"how-to/{name}", content


def pages() -> Iterator[tuple[str, str]]:
    """Every generated page: its path in the site and its text."""
    yield "reference/spec.md", spec_page()
    yield "reference/commands.md", commands_page()
    for kind in REGISTRIES:
        yield f"reference/{kind}.md", registry_page(kind)
    for path in notebooks.DIRECTORY.glob("*.ipynb"):
        text, _ = notebooks.page(notebooks.read(path), path.stem)
        yield f"how-to/notebook-{path.stem}.md", text.replace("](../pages/how-to/", "](")
    for document, page in DOCUMENTS.items():
        text = DIAGRAM.sub(drawn, (ROOT / document).read_text())
        yield page, relinked(text, document, page)


def drawn(diagram: re.Match[str]) -> str:
    """A Mermaid diagram of packages as lists: to draw it, a browser would fetch a program."""
    names = {node: label.partition(" · ")[0] for node, label in NODE.findall(diagram[1])}
    parts = []
    for title, floor in FLOOR.findall(diagram[1]):
        package, _, about = title.partition(" · ")
        parts += ['<div class="floor" markdown>', "", f"**{package}** {about}", ""]
        arrows = ARROW.findall(floor)
        for node, label in NODE.findall(floor):
            below = ", ".join(names[end] for start, end in arrows if start == node)
            parts.append(f"- {label} → {below}" if below else f"- {label}")
        parts += ["", "</div>", ""]
    return "\n".join(parts)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Insert sections of the README and names, and let links out of the pages lead to pages."""
    source = page.file.src_uri
    text = relinked(markdown, f"{PAGES}/{source}", source)
    text = LISTED.sub(lambda found: names(found[1]), text)
    return INCLUDED.sub(lambda found: relinked(section(found[1]), "README.md", source), text)


def section(title: str) -> str:
    """What the README says under a heading, up to the next one."""
    text = (ROOT / "README.md").read_text()
    heading = rf"^#+ {re.escape(title)}\n(.*?)(?=^## |\Z)"
    (found,) = re.findall(heading, text, re.MULTILINE | re.DOTALL)
    return str(found).strip()


def names(kind: str) -> str:
    """The names in a registry, each with a link to its entry on the registry's page."""
    from markdown.extensions.toc import slugify

    from sweeps.cli.listings import names_of

    return ", ".join(f"[`{name}`]({kind}.md#{slugify(name, '-')})" for name in names_of(kind))


def relinked(text: str, source: str, page: str) -> str:
    """The text of the file ``source`` with its links as ``page`` of the site needs them.

    A link to a file that is no page becomes plain words.
    """

    def target(match: re.Match[str]) -> str:
        words, link, anchor = match[1], match[2], match[3] or ""
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        if place.startswith(f"{PAGES}/"):
            found = place.removeprefix(f"{PAGES}/")
        elif place.startswith(f"{IMAGES}/"):
            found = place.replace(IMAGES, "images")
        elif place.startswith(f"{NOTEBOOKS}/"):
            found = f"how-to/notebook-{Path(place).stem}.md"
        elif place in DOCUMENTS:
            found = DOCUMENTS[place]
        else:
            return words.strip("![]")
        return f"{words}({posixpath.relpath(found, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(target, text)


def registry_page(kind: str) -> str:
    """Everything about every entry, as ``calsweep KIND NAME`` prints it.

    What most entries explain in the same words is at the top instead.
    """
    from sweeps.cli.entry_view import print_entry
    from sweeps.cli.listings import entry_of, names_of

    texts = {}
    for name in names_of(kind):
        printed = io.StringIO()
        console = Console(file=printed, width=WIDTH, color_system=None)
        word, entry = entry_of(kind, name)
        print_entry(word, name, entry, console)
        texts[name] = [line.rstrip() for line in printed.getvalue().splitlines()]
    shared = _shared(list(texts.values()))
    lines = [f"# {kind.capitalize()}", "", f"`calsweep {kind}` lists them.", ""]
    if shared:
        lines += [f"Most {kind} also take these settings:", "", COLUMNS, *shared, "```", ""]
    for name, text in texts.items():
        own = "\n".join(line for line in text if line not in shared)
        lines += [f"## `{name}`", "", COLUMNS, own, "```", ""]
    return "\n".join(lines)


def _shared(texts: list[list[str]]) -> list[str]:
    """The sentences that are in more than half of the texts: no lines of tables or of facts."""
    prose = ({line for line in text if line[:1].strip() and "  " not in line} for text in texts)
    counts = Counter(line for lines in prose for line in lines)
    often = [line for line, count in counts.items() if count > len(texts) / 2]
    return sorted(often, key=lambda line: next(t.index(line) for t in texts if line in t))


def commands_page() -> str:
    """The help of every command and of the commands below it."""
    from sweeps.cli.main import _parser

    parser = _parser()
    lines = ["# Commands", "", COLUMNS, _help(parser), "```", ""]
    for command in _commands(parser):
        lines += [f"## `{command.prog}`", "", COLUMNS, _help(command), "```", ""]
    return "\n".join(lines)


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands, those of ``calsweep baseline accept`` included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from _commands(command)


def _help(parser: argparse.ArgumentParser) -> str:
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=WIDTH)
    return parser.format_help().rstrip()


def spec_page() -> str:
    """Every key of a spec, from the JSON Schema that editors are given."""
    from sweeps.spec.json_schema import json_schema

    schema = json_schema()
    lines = [
        "# Keys of a spec",
        "",
        "`calsweep schema > calsweep.json` gives editors the same.",
        "",
    ]
    lines += _table(schema)
    lines += ["", "## A row of `methods`", "", ROW, "", *_table(schema["$defs"]["row"])]
    for name, part in schema["$defs"].items():
        if _has_section(name, part):
            lines += ["", f"## {name}", "", _cell(part.get("description", "")), "", *_table(part)]
    return "\n".join(lines) + "\n"


def _has_section(name: str, part: dict[str, Any]) -> bool:
    """Settings of their own; those of single methods and values are on the pages of these."""
    return name[:1].isupper() and "." not in name and bool(part.get("properties"))


def _table(part: dict[str, Any]) -> list[str]:
    lines = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for key, about in part["properties"].items():
        required = key in part.get("required", ())
        default = "required" if required else _default(about) if "default" in about else ""
        unit = f" ({about['unit']})" if about.get("unit") else ""
        names = f"; [what there is]({NAMED_IN[key]}.md)" if key in NAMED_IN else ""
        meaning = _cell(about.get("description", "") + unit + names)
        lines.append(f"| `{key}` | {_cell(_values(about))} | {_cell(default)} | {meaning} |")
    return lines


def _default(about: dict[str, Any]) -> str:
    """A default as YAML has it."""
    value = about["default"]
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _values(about: dict[str, Any]) -> str:
    """The type of a value in a few words."""
    if "$ref" in about:
        name = about["$ref"].rpartition("/")[2]
        named = name[:1].isupper() and "." not in name
        return f"[{name}](#{name.lower()})" if named else name.partition(".")[0]
    if "enum" in about:
        return "name" if len(about["enum"]) > MANY else " \\| ".join(map(str, about["enum"]))
    if "const" in about:
        return str(about["const"])
    if "allOf" in about or about.get("type") == "object":
        held = about.get("additionalProperties")
        return f"mapping to {_values(held)}" if isinstance(held, dict) else "mapping"
    if about.get("type") == "array":
        inside = _values(about["items"])
        return f"list of ({inside})" if " or " in inside else f"list of {inside}"
    for several in ("anyOf", "oneOf"):
        if several in about:
            return " or ".join(dict.fromkeys(_values(each) for each in about[several]))
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {_number(about[key])}" for key, sign in signs.items() if key in about]
    return " ".join([str(about.get("type", "any")), *bounds])


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _cell(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return " ".join(text.split()).replace("``", "`")
