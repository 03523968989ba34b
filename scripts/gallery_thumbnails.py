"""The picture on a notebook's card: its own best output, made small.

Which output that is says the notebook, by a cell's id under `thumbnail` in its metadata; without
it, it is the last figure, and where there is none the first longer text. A figure becomes a small
WebP file, a drawing stays what it is, and a text becomes a page of SVG.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from html import escape
from typing import Any

from gallery_errors import GalleryError
from PIL import Image

WIDTH = 480  # pixels of a figure; a card is about half as wide, on a screen of two pixels a point
NARROWEST, COLUMNS = 48, 84  # of a text; what is longer is cut off
LONG = 8  # lines that make a text worth looking at


@dataclass(frozen=True)
class Thumbnail:
    """A small picture.

    Attributes
    ----------
    data : bytes
        What is in the file.
    suffix : str
        The end of the file's name, ``".webp"`` or ``".svg"``.
    alt : str
        What it shows, in a sentence.
    size : tuple of int
        Width and height in pixels, of which the card takes the ratio.
    """

    data: bytes
    suffix: str
    alt: str
    size: tuple[int, int]


def thumbnail(notebook: dict[str, Any], name: str) -> Thumbnail:
    """Return the picture for a notebook's card.

    Parameters
    ----------
    notebook : dict
        The notebook's JSON.
    name : str
        The file's name, for messages.

    Raises
    ------
    GalleryError
        The metadata names a cell that is not there or shows nothing, or no cell shows anything.
    """
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    about = notebook["metadata"]["tvmlab"]
    if (wanted := about.get("thumbnail")) is not None:
        cells = [cell for cell in cells if cell.get("id") == wanted]
    outputs = [output for cell in cells for output in cell["outputs"]]
    if figures := [output for output in outputs if kind_of_figure(output)]:
        return _figure(figures[-1])
    if texts := [text for text in map(_text, outputs) if text.strip()]:
        text = next((text for text in texts if text.count("\n") + 1 >= LONG), texts[0])
        return _page(text, f"Text from the notebook “{about['title']}”.")
    where = "no cell" if wanted is None else f"the cell {wanted!r} is not there or"
    raise GalleryError(
        f"{name}: {where} shows a figure or a text for the card; name one that does, by its id, "
        "under `thumbnail` in the metadata of `tvmlab`"
    )


def kind_of_figure(output: dict[str, Any]) -> str | None:
    """Return the MIME type of the picture that an output is, or None if it is none."""
    return next((kind for kind in output.get("data", {}) if kind.startswith("image/")), None)


def alt_text(output: dict[str, Any]) -> str | None:
    """Return the alt text of the figure that an output is."""
    alt: str | None = output["metadata"].get(kind_of_figure(output), {}).get("alt")
    return alt


def _text(output: dict[str, Any]) -> str:
    return "".join(output.get("text", output.get("data", {}).get("text/plain", ""))).strip("\n")


def _figure(output: dict[str, Any]) -> Thumbnail:
    kind, alt = kind_of_figure(output), alt_text(output) or ""
    content = "".join(output["data"][kind])
    if kind == "image/svg+xml":
        return Thumbnail(content.encode(), ".svg", alt, (WIDTH, WIDTH * 5 // 8))
    return _small(base64.b64decode(content), alt)


def _small(png: bytes, alt: str) -> Thumbnail:
    with Image.open(io.BytesIO(png)) as figure:
        page = Image.new("RGB", figure.size, "white")  # a figure may be transparent
        rgba = figure.convert("RGBA")
        page.paste(rgba, mask=rgba)
    width = min(WIDTH, page.width)
    small = page.resize((width, round(page.height * width / page.width)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, "WEBP", quality=60, method=6)
    return Thumbnail(file.getvalue(), ".webp", alt, small.size)


def _page(text: str, alt: str) -> Thumbnail:
    lines = [line.expandtabs(4) for line in text.split("\n")]
    columns = min(COLUMNS, max(NARROWEST, *map(len, lines)))
    # Of letters as wide as most monospaced ones are, and margins.
    width = columns * 6 // 10 * 14 + 28
    height = width * 5 // 8
    rows = "".join(
        f'<tspan x="14" dy="19" xml:space="preserve">{escape(line[:columns]) or " "}</tspan>'
        for line in lines[: (height - 14) // 19]
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<rect width="{width}" height="{height}" fill="#fff"/><text x="14" y="4" fill="#24292f" '
        f'font-size="14" font-family="ui-monospace, Menlo, Consolas, monospace">{rows}</text>'
        "</svg>\n"
    )
    return Thumbnail(svg.encode(), ".svg", alt, (width, height))
