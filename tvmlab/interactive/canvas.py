"""A small SVG picture, put together shape by shape.

Not matplotlib's: a state is drawn many times over and compared as text, so it has to be short and
the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

__all__ = ["Canvas"]


class Canvas:
    """A white picture.

    Parameters
    ----------
    width, height : int
        Its size in pixels; the origin is at the top left.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._shapes: list[str] = []

    def rectangle(
        self,
        left: float,
        top: float,
        width: float,
        height: float,
        *,
        fill: str,
        edge: str = "none",
        thick: float = 1,
        dash: str = "",
    ) -> None:
        """Draw a rectangle; `dash` is SVG's ``stroke-dasharray``, empty for a full line."""
        self._shapes.append(
            f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" height="{_n(height)}" '
            f'fill="{fill}"{_stroke(edge, thick, dash)}/>'
        )

    def path(
        self, steps: str, *, edge: str, fill: str = "none", thick: float = 1, dash: str = ""
    ) -> None:
        """Draw a path, its steps in SVG's language."""
        self._shapes.append(f'<path d="{steps}" fill="{fill}"{_stroke(edge, thick, dash)}/>')

    def line(self, points: Sequence[tuple[float, float]], *, edge: str, thick: float = 1) -> None:
        """Draw a line through points."""
        self.path("M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points), edge=edge, thick=thick)

    def text(
        self,
        left: float,
        base: float,
        words: str,
        *,
        size: int = 12,
        anchor: str = "start",
        code: bool = False,
        bold: bool = False,
    ) -> None:
        """Write a line of text; `anchor` says what stands at `left`: its start, middle or end."""
        family = ' font-family="monospace" xml:space="preserve"' if code else ""
        weight = ' font-weight="bold"' if bold else ""
        self._shapes.append(
            f'<text x="{_n(left)}" y="{_n(base)}" font-size="{size}" text-anchor="{anchor}"'
            f"{family}{weight}>{escape(words)}</text>"
        )

    def svg(self) -> str:
        """Give the picture's text, in one line."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" font-family="sans-serif">'
            f'<rect width="{self.width}" height="{self.height}" fill="white"/>'
            f"{''.join(self._shapes)}</svg>"
        )


def _stroke(edge: str, thick: float, dash: str) -> str:
    if edge == "none":
        return ""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f' stroke="{edge}" stroke-width="{_n(thick)}"{dashes}'


def _n(value: float) -> str:
    """Write a number of pixels with one digit behind the point at most."""
    return f"{value:.1f}".removesuffix(".0")
