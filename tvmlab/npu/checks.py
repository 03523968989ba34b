"""Whether the machine takes a match, and if not, why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tvm import relax

from ..errors import TvmlabError
from .config import Config
from .found import Found
from .layers import Add, Convolution, Layer, Mean, Pool, View
from .read_scales import Refusal
from .reading import find

try:
    from .tiling import fits
except ImportError:

    def fits(layer, values, config):
        return None


__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """A predicate of the pattern table, which can say why.

    Attributes
    ----------
    config : Config
        The machine.
    layout : str or None
        The order of images that it keeps to; None for either.
    kind : str
        What is looked for, see `KINDS`; the empty one for anything.
    """

    config: Config
    layout: str | None = None
    kind: str = ""

    KINDS: ClassVar[dict[str, Callable[[Layer], bool]]] = {
        "": lambda layer: True,
        "depthwise": lambda layer: isinstance(layer, Convolution) and layer.depthwise,
        "convolution": lambda layer: _product(layer, "conv2d"),
        "dense": lambda layer: _product(layer, "dense"),
        "add": lambda layer: isinstance(layer, Add),
        "pool": lambda layer: isinstance(layer, Pool),
        "mean": lambda layer: isinstance(layer, Mean),
        "view": lambda layer: isinstance(layer, View),
    }

    def of(self, kind: str) -> Check:
        """Give the check of one kind of layer."""
        return Check(self.config, self.layout, kind)

    def __call__(self, expr: relax.Expr) -> bool:
        """Say whether the machine takes the graph that matched."""
        return self.reason(expr) is None

    def reason(self, expr: relax.Expr) -> str | None:
        """Say why the machine does not take a graph; None if it does."""
        try:
            found = find(expr)
            self.fitting(found)
        except Refusal as refusal:
            return refusal.reason()
        except TvmlabError as error:  # of the reference: a scale that is none
            return error.what
        return None if self.KINDS[self.kind](found.layer) else f"it is no {self.kind}"

    def fitting(self, found: Found) -> None:
        """Insist that a layer's images lie as those of the module, and that it fits the memory."""
        if self.layout and found.layout not in (None, self.layout):
            raise Refusal(
                f"its images are {found.layout}, most of the module's {self.layout}",
                fix="convert one to the other first (relax.transform.ConvertLayout)",
            )
        values = found.values(found.layout or self.layout or "NCHW")
        why = fits(found.layer, values, self.config)
        if why:
            raise Refusal(why)


def _product(layer: Layer, name: str) -> bool:
    return isinstance(layer, Convolution) and not layer.depthwise and layer.name.startswith(name)
