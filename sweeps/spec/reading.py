"""From the text of a spec to plain values, and the line of each of them.

What YAML allows but a spec cannot use is refused here, with its location: dates and tagged objects,
keys that are not text, numbers that overflow, and documents that expand to far more than was
written.
"""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from typing import Any

import yaml

from sweeps.errors import UserError

Location = tuple[str | int, ...]
Lines = dict[Location, int]

LARGEST_TEXT = 200_000
MOST_VALUES = 50_000
_DEEPEST = 40
LARGEST_NUMBER = 2**53
LONGEST_MESSAGE = 700
OWN = "x-"
"""The prefix of top-level keys that are the author's own, a place for YAML anchors."""

_YAML = "tag:yaml.org,2002:"
_SCALARS = {f"{_YAML}{name}" for name in ("str", "int", "float", "bool", "null", "merge")}
_PLAIN = _SCALARS | {f"{_YAML}seq", f"{_YAML}map"}


class SpecError(UserError):
    """A specification that cannot be run; the message is meant for its author."""


class ProblemError(ValueError):
    """A problem with the value at ``location``; the loader adds file and line."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.location = location


class _Loader(yaml.SafeLoader):
    """Safe YAML in which ``1e-3`` is a number, as in YAML 1.2 and everywhere else.

    Deep nesting is refused at once: PyYAML takes ever longer with every level.
    """

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        self._refuse_deeper_than(self.flow_level)
        super().fetch_flow_collection_start(TokenClass)

    def add_indent(self, column: int) -> bool:
        self._refuse_deeper_than(len(self.indents))
        added: bool = super().add_indent(column)
        return added

    def _refuse_deeper_than(self, level: int) -> None:
        if level > _DEEPEST:
            raise yaml.MarkedYAMLError(
                problem="it is nested too deeply", problem_mark=self.get_mark()
            )


_Loader.add_implicit_resolver(
    f"{_YAML}float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def is_there(path: Path) -> bool:
    """Whether a file or directory exists; False if that cannot be found out."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long a name, a directory without permission
        return False


def read_text(path: Path) -> str:
    """The text of a spec's file. Raises ``SpecError`` if it cannot be read, or is too long."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST_TEXT + 1)
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, _specs_in(path.parent))
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise SpecError(f"{path}: there is no such file{hint}") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: cannot be read as text: {error}") from None
    if len(text) > LARGEST_TEXT:
        raise SpecError(f"{path}: is longer than {LARGEST_TEXT} characters; specs are short")
    return text


def _specs_in(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.glob("*.y*ml")]
    except OSError:  # a directory without permission
        return []


def parse(path: Path, text: str) -> tuple[dict[str, Any], Lines]:
    """The values of a spec and the line of each. Raises ``SpecError`` with its place.

    Top-level keys that begin with ``x-`` are the author's own: their content is left out, and not
    even constructed.
    """
    lines: Lines = {}
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        raise _invalid(path, text, error) from None
    try:
        node = loader.get_single_node()
        written: Any = None
        if node is not None:
            _check_size(node, lines)
            _check_values(loader, node, (), lines)
            if isinstance(node, yaml.MappingNode):
                node.value = [pair for pair in node.value if not _is_own(pair[0])]
            written = loader.construct_document(node)
    except ProblemError as problem:
        raise SpecError(place(path, problem.location, lines, str(problem))) from None
    except yaml.YAMLError as error:
        raise _invalid(path, text, error) from None
    except Exception as error:  # PyYAML's constructors of tags may raise anything
        raise SpecError(place(path, (), lines, f"not valid YAML: {error}")) from None
    finally:
        loader.dispose()
    if not isinstance(written, dict):
        raise SpecError(
            f"{path}: found {type(written).__name__}; expected a mapping with at least "
            "name, datasets and methods"
        )
    # Merged from elsewhere, such keys are still there.
    return {key: value for key, value in written.items() if not key.startswith(OWN)}, lines


def place(path: Path, location: Location, lines: Lines, message: str) -> str:
    """``message`` in one line, with file, line and field in front."""
    known = location
    while known and known not in lines:
        known = known[:-1]
    field = ".".join(_readable(part) for part in location)
    where = f"{path}:{lines.get(known, 1)}: {field}: " if field else f"{path}: "
    return where + _one_line(message)


def shortened(value: Any) -> str:
    """``value`` as it would be written in Python, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _readable(part: str | int) -> str:
    text = str(part)
    return text if text.isprintable() and 0 < len(text) <= 80 else shortened(text)


def _one_line(message: str) -> str:
    # A message of a user's own code may have any length and content.
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 3] + "..."


def _invalid(path: Path, text: str, error: yaml.YAMLError) -> SpecError:
    """The error for invalid YAML, with its line and top-level key."""
    begun = line = 0
    problem = str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        mark, context = error.problem_mark, error.context_mark
        begun = line = mark.line if mark else 0
        problem = str(error.problem)
        # A block goes back to the start of the file; what was opened and not closed, to its start.
        if context and context.line != line and "block" not in str(error.context):
            begun = context.line
            problem += f" ({error.context} of line {begun + 1})"
    elif isinstance(error, yaml.reader.ReaderError):
        begun = line = text.count("\n", 0, int(error.position))
        problem = f"the character {chr(int(error.character))!r} is not allowed"
    location = _key_above(text, begun)
    return SpecError(place(path, location, {location: line + 1}, f"not valid YAML: {problem}"))


def _key_above(text: str, line: int) -> Location:
    """The top-level key to which the line (counted from 0) seems to belong."""
    for above in reversed(text.splitlines()[: line + 1]):
        found = re.match(r"^['\"]?([A-Za-z_][\w-]*)['\"]?\s*:", above)
        if found:
            return (found[1],)
    return ()


def _check_size(root: yaml.Node, lines: Lines) -> None:
    """Raise ``ProblemError`` for a document that its aliases expand to too much.

    Aliases refer to nodes above them, so every node is measured once.
    """
    sizes: dict[int, tuple[int, int]] = {}

    def measure(node: yaml.Node) -> tuple[int, int]:
        known = sizes.get(id(node))
        if known is None:
            sizes[id(node)] = (MOST_VALUES, _DEEPEST)  # contains itself, so it never ends
            inside = [measure(child) for child in _children(node)]
            known = 1 + sum(size for size, _ in inside), 1 + max((d for _, d in inside), default=0)
            sizes[id(node)] = known
        return known

    top_level = root.value if isinstance(root, yaml.MappingNode) else []
    for key, value in [*top_level, (root, root)]:
        size, depth = measure(value)
        location: Location = () if key is root else (_text(key),)
        if depth > _DEEPEST or size > MOST_VALUES:
            lines[location] = key.start_mark.line + 1
        if depth > _DEEPEST:
            raise ProblemError(location, "is nested too deeply, or contains itself")
        if size > MOST_VALUES:
            raise ProblemError(
                location, f"expands to more than {MOST_VALUES} values; use fewer aliases"
            )


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _is_own(key: yaml.Node) -> bool:
    return _text(key).startswith(OWN)


def _text(key: yaml.Node) -> str:
    return key.value if isinstance(key, yaml.ScalarNode) else "?"


def _check_values(loader: _Loader, node: yaml.Node, at: Location, lines: Lines) -> None:
    """Note every line. Raises ``ProblemError`` for what a spec cannot contain."""
    lines.setdefault(at, node.start_mark.line + 1)
    own = bool(at) and str(at[0]).startswith(OWN)
    if isinstance(node, yaml.ScalarNode):
        if not own:
            _check_scalar(loader, node, at)
    elif node.tag not in _PLAIN and not own:
        raise ProblemError(at, f"found a {_short_tag(node.tag)}; write plain values")
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _check_values(loader, value, (*at, index), lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*at, _text(key))
            first = lines.get(here)
            if first is None:
                lines[here] = key.start_mark.line + 1
            if not own and key.tag not in (f"{_YAML}str", f"{_YAML}merge"):
                raise ProblemError(here, "the key is not a text; write it in quotes")
            if first is not None:
                lines[here] = key.start_mark.line + 1
                raise ProblemError(here, f"is written twice (first on line {first}); keep one")
            if not own:
                _check_scalar(loader, key, here)
            _check_values(loader, value, here, lines)


def _check_scalar(loader: _Loader, node: yaml.Node, at: Location) -> None:
    if node.tag not in _SCALARS:
        kind = "date" if node.tag.endswith(":timestamp") else _short_tag(node.tag)
        raise ProblemError(
            at, f"found the {kind} {shortened(node.value)}; in quotes it would be a text"
        )
    if node.tag == f"{_YAML}merge":
        return
    try:
        value = loader.construct_object(node)
    except (ValueError, LookupError, OverflowError, yaml.YAMLError):
        raise ProblemError(at, f"found {shortened(node.value)}, which is not a number") from None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ProblemError(at, f"found {shortened(value)}, which is not text") from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise ProblemError(at, f"found {value}; write a finite number")
    elif isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        raise ProblemError(at, f"found {shortened(node.value)}; the number is too large")


def _short_tag(tag: str) -> str:
    return shortened(tag.removeprefix(_YAML))
