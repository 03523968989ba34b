"""Whether the machine takes a match, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from ..errors import TvmlabError
from .codegen.tiling import fits
from .config import Config
from .reading import find, kind
from .reading.found import Found
from .reading.scales import Refusal

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """A predicate of the pattern table, which can say why.

    It reads a match as the code generator will, so what passes can be compiled.

    Attributes
    ----------
    config : Config
        The machine.
    layout : str or None
        The order of images that it keeps to; None for either.
    kind : str
        What is looked for, such as ``"conv2d"`` (see `tvmlab.npu.reading.kind`); the empty one for
        anything.
    """

    config: Config
    layout: str | None = None
    kind: str = ""

    def of(self, kind: str) -> Check:
        """Give the check of one kind of layer."""
        return Check(self.config, self.layout, kind)

    def __call__(self, expr: relax.Expr) -> bool:
        """Say whether the machine takes the graph that matched."""
        return self.reason(expr) is None

    def reason(self, expr: relax.Expr) -> str | None:
        """Say why the machine does not take a graph; None if it does.

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
            self.fitting(find(expr))
        except Refusal as refusal:
            return refusal.reason()
        except TvmlabError as error:  # of the reference: a scale that is none
            return error.what
        return None

    def fitting(self, found: Found) -> None:
        """Insist that a layer's images lie as those of the module, and that it fits the memory.

        Raises
        ------
        Refusal
            If not.
        """
        if self.layout and found.layout not in (None, self.layout):
            raise Refusal(
                f"its images are {found.layout}, most of the module's {self.layout}",
                fix="convert one to the other first (relax.transform.ConvertLayout)",
            )
        why = fits(found.layer, found.values(found.layout or self.layout or "NCHW"), self.config)
        if why:
            raise Refusal(why)
