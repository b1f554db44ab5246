"""Pictures for the page: a fraction of their size, and only as many as fit."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import NamedTuple

from PIL import Image

WIDEST = 1000
QUALITY = 50


class Picture(NamedTuple):
    """A figure as it was filed; the page shows those with a title, and has charts for others."""

    name: str
    dataset: str
    png: bytes
    title: str = ""
    about: str = ""


def small(png: bytes) -> bytes:
    """The picture as WebP, no wider than a page shows it."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    if picture.width > WIDEST:
        size = (WIDEST, round(picture.height * WIDEST / picture.width))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=QUALITY, method=6)
    return buffer.getvalue()


def image_html(shown: Picture) -> str:
    """A figure that carries its picture, with a caption."""
    data = small(shown.png)
    with Image.open(io.BytesIO(data)) as picture:
        width, height = picture.size
    source = base64.b64encode(data).decode()
    return (
        f'<figure class="picture"><figcaption><b>{escape(shown.title)}</b> {escape(shown.about)}'
        "</figcaption>"
        f""
        f'<img loading="lazy" width="{width}" height="{height}" alt="{escape(shown.title)}" '
        f'src="data:image/webp;base64,{source}"></figure>'
    )
