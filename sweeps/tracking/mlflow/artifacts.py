"""Artifacts on this machine's disk, written directly as files instead of through MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit


def is_local(place: str) -> bool:
    """Whether an artifact location is a directory here."""
    return place.startswith(("file:///", "/"))


def chooses_place(uri: str) -> bool:
    """Whether the client of this tracking URI chooses where artifacts go: a server does itself."""
    return not uri.startswith(("http:", "https:", "databricks"))


def local_path(place: str) -> Path:
    """The directory of a local artifact location."""
    return Path(unquote(urlsplit(place).path) if place.startswith("file:") else place)


def write_files(place: str, files: Mapping[str, bytes]) -> None:
    """Write files, by their relative names, into a local artifact location."""
    root = local_path(place)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
