"""Whether the machine takes a match, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from ..errors import TvmlabError
from .codegen.tiling import fits
from .config import Config
from .reading import Unsupported, find, kind

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """A predicate of the pattern table, which can say why.

    It reads a match as the code generator does, so that what passes can be compiled.

    Attributes
    ----------
    config : Config
        The machine.
    layout : str or None
        The only order of images that it takes; None for both.
    kind : str
        The only kind of layer that it takes, such as ``"conv2d"``; empty for all.
    """

    config: Config
    layout: str | None = None
    kind: str = ""

    def __call__(self, expr: relax.Expr) -> bool:
        """Return whether the machine takes the graph that matched."""
        return self.reason(expr) is None

    def reason(self, expr: relax.Expr) -> str | None:
        """Return why the machine does not take a graph; None if it does.

        Parameters
        ----------
        expr : tvm.relax.Expr
            What the whole pattern matched, as nested calls.

        Returns
        -------
        str or None
        """
        if self.kind and kind(expr) != self.kind:
            return f"it is no {self.kind}"
        try:
            match = find(expr)
            if self.layout and match.layout not in (None, self.layout):
                raise Unsupported(
                    f"its images are {match.layout}, most of the module's {self.layout}",
                    fix="convert one to the other first (relax.transform.ConvertLayout)",
                )
            return fits(
                match.layer, match.values(self.layout or match.layout or "NCHW"), self.config
            )
        except Unsupported as error:
            return error.reason()
        except TvmlabError as error:  # of the reference: an invalid scale
            return error.what
