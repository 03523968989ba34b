"""A run as a flame graph: an SVG picture in which the width of a call is its time.

After Gregg, "The flame graph", CACM 2016. All calls of a function from one caller are one frame,
and the widest frames are on the left. A frame below the functions groups them by kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from ...plot import COLOURS

__all__ = ["Frame", "frames", "svg"]

_WIDTH, _HEIGHT, _MARGIN = 1200, 22, 10
_LEAST = 0.4  # narrower than this nothing is to be seen
# Text is black: the darkest of the colours are left out.
_FILLS = ("#D9D9D9", COLOURS[1], COLOURS[4], COLOURS[5], COLOURS[6], "#8FD3BC", "#F2B48C")


@dataclass
class Frame:
    """A frame of the graph: its label, its time, and the frames on top of it by name."""

    name: str
    kind: str
    nanoseconds: float = 0.0
    inside: dict[str, Frame] = field(default_factory=dict)

    def child(self, name: str, kind: str) -> Frame:
        """Return the frame of that name on top of this one; add it if it is missing."""
        return self.inside.setdefault(name, Frame(name, kind))

    @property
    def levels(self) -> int:
        """The height of the stack in frames, this one included."""
        return 1 + max((frame.levels for frame in self.inside.values()), default=0)


def frames(run: Sequence[Any], kinds: Mapping[str, str]) -> Frame:
    """Merge the calls of a run (events of `result`); return the frame of the run."""
    root = Frame(run[0].name, "run", run[0].nanoseconds)
    stack = [root]
    for event, after in zip(run[1:], [*run[2:], None], strict=False):
        del stack[event.depth :]
        under, kind = stack[-1], "caller"
        if after is None or after.depth <= event.depth:  # not a function of Relax, which calls
            kind = kinds.get(event.name, "virtual machine")
            under = under.child(kind, kind)
            under.nanoseconds += event.nanoseconds
        made = under.child(event.name, kind)
        made.nanoseconds += event.nanoseconds
        stack.append(made)
    return root


def svg(root: Frame) -> str:
    """Draw frames as the text of an SVG file."""
    height = root.levels * _HEIGHT + 2 * _MARGIN
    colours: dict[str, str] = {}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-labelledby="title" '
        'font-family="monospace" font-size="12">',
        f'<title id="title">Flame graph of {_text(root.name)}</title>',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    whole = max(root.nanoseconds, 1)
    scale = (_WIDTH - 2 * _MARGIN) / whole

    def draw(frame: Frame, left: float, level: int) -> None:
        width = frame.nanoseconds * scale
        if width < _LEAST:
            return
        colour = colours.setdefault(frame.kind, _FILLS[len(colours) % len(_FILLS)])
        top = height - _MARGIN - (level + 1) * _HEIGHT
        share = f"{frame.nanoseconds / whole:.1%}"
        # An element `svg` cuts off the text that has no room in it.
        parts.append(
            f'<svg x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_HEIGHT}">'
            f"<title>{_text(frame.name)}: {frame.nanoseconds / 1e6:.3f} ms, {share}</title>"
            f'<rect width="100%" height="100%" fill="{colour}" stroke="white"/>'
            f'<text x="3" y="15">{_text(frame.name.removeprefix("fused_"))} {share}</text></svg>'
        )
        for inner in sorted(frame.inside.values(), key=lambda inner: -inner.nanoseconds):
            draw(inner, left, level + 1)
            left += inner.nanoseconds * scale

    draw(root, _MARGIN, 0)
    return "\n".join([*parts, "</svg>", ""])


def _text(name: str) -> str:
    """Escape a name for XML, which cannot represent characters that do not print."""
    return escape("".join(letter if letter.isprintable() else "?" for letter in name))
