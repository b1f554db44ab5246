"""Pictures for the page, compressed, and only as many as fit."""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

from PIL import Image

WIDEST = 1000
QUALITY = 50


class Picture(NamedTuple):
    """A figure as written; the page shows those with a title, and has charts for the others."""

    name: str
    dataset: str
    png: bytes
    title: str = ""
    about: str = ""


class WebP(NamedTuple):
    """A picture as embedded in the page, in base64."""

    data: str
    width: int
    height: int


def small(png: bytes) -> WebP:
    """The picture as WebP, no wider than shown on the page."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    if picture.width > WIDEST:
        size = (WIDEST, round(picture.height * WIDEST / picture.width))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=QUALITY, method=6)
    return WebP(base64.b64encode(buffer.getvalue()).decode(), *picture.size)
