"""What goes into a compiled function and what comes out, as values of Python's own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Input", "Output"]


@dataclass(frozen=True)
class Input:
    """One input of a function.

    Attributes
    ----------
    name : str
        The parameter's name.
    shape : tuple of int or str
        Sizes; a name is a size only known at run time, equal wherever the name is equal.
    dtype : str
        For example ``"float32"``.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        """Write it like a declaration."""
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Output:
    """One output of a function; the fields of a tuple are outputs of their own.

    Attributes
    ----------
    name : str
        What the model calls it; where it does not say, its place: ``"output_0"``, and of a tuple in
        a tuple ``"output_0_1"``.
    shape : tuple of int or str, or None
        Sizes; a text is a formula over sizes that are only known at run time. None where not even
        the number of dimensions is known.
    dtype : str
        For example ``"float32"``; ``"shape"`` for a tuple of sizes.
    """

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str

    def __str__(self) -> str:
        """Write it like a declaration."""
        sizes = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{sizes}]"
