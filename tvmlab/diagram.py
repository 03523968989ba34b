"""A module's dataflow as text that Mermaid draws, as JupyterLab and GitHub do by themselves."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import ir, relax

from .errors import InputError
from .relay.graph import key

__all__ = ["diagram"]


def diagram(mod: ir.IRModule, function: str = "main") -> str:
    """Draw a function: a box for each call, an arrow for each value that goes into it.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        A module with that Relax function.
    function : str
        Its name.

    Returns
    -------
    str
        A Mermaid flowchart. Constants and tuples have no boxes; a branch is one box.

    Raises
    ------
    InputError
        The module has no such Relax function.
    """
    if function not in mod or not isinstance(mod[function], relax.Function):
        raise InputError(
            f"the module has no Relax function {function!r}",
            where=", ".join(var.name_hint for var in mod.get_global_vars()) or "an empty module",
            fix="name one that it has",
        )
    return "\n".join(["flowchart TD", *_Drawing().lines(mod[function])])


class _Drawing:
    """Boxes numbered as they come; each variable knows the boxes that its value comes from."""

    def __init__(self) -> None:
        self.sources: dict[int, tuple[str, ...]] = {}
        self.tuples: dict[int, relax.Tuple] = {}
        self.count = 0

    def lines(self, function: relax.Function) -> Iterator[str]:
        for param in function.params:
            box = self._box()
            self.sources[key(param)] = (box,)
            yield f'  {box}(["{_said(str(param.name))}{_type(param)}"])'
        body = function.body
        for block in getattr(body, "blocks", ()):
            for binding in block.bindings:
                yield from self._binding(binding)
        box = self._box()
        yield f'  {box}(["result"])'
        result = body.body if isinstance(body, relax.SeqExpr) else body
        yield from _arrows(self._from(result), box)

    def _binding(self, binding: relax.Binding) -> Iterator[str]:
        value = binding.value
        if isinstance(value, relax.Function):  # drawn where it is called
            return
        if not isinstance(value, (relax.Call, relax.If)):
            self.sources[key(binding.var)] = self._from(value)
            if isinstance(value, relax.Tuple):
                self.tuples[key(binding.var)] = value
            return
        box = self._box()
        yield f'  {box}["{_said(_name(value))}{_type(binding.var)}"]'
        # A branch reads its condition, and what its two sides take from outside.
        args = (
            value.args
            if isinstance(value, relax.Call)
            else [value.cond, *relax.analysis.free_vars(value)]
        )
        yield from _arrows([source for arg in args for source in self._from(arg)], box)
        self.sources[key(binding.var)] = (box,)

    def _from(self, expr: relax.Expr) -> tuple[str, ...]:
        """List the boxes that an expression without calls gets its values from."""
        if isinstance(expr, relax.Tuple):
            return tuple(source for field in expr.fields for source in self._from(field))
        if isinstance(expr, relax.TupleGetItem):
            whole = self.tuples.get(key(expr.tuple_value))
            return self._from(expr.tuple_value if whole is None else whole.fields[expr.index])
        return self.sources.get(key(expr), ()) if isinstance(expr, relax.Var) else ()

    def _box(self) -> str:
        self.count += 1
        return f"n{self.count}"


def _arrows(sources: tuple[str, ...] | list[str], box: str) -> Iterator[str]:
    return (f"  {source} --> {box}" for source in dict.fromkeys(sources))


def _name(value: relax.Expr) -> str:
    if isinstance(value, relax.If):
        return "if"
    called = value.op
    if isinstance(called, ir.Op):
        name = str(called.name).removeprefix("relax.")
        if name.startswith("call_") and value.args and isinstance(value.args[0], ir.GlobalVar):
            return str(value.args[0].name_hint)
        return name
    return str(getattr(called, "name_hint", "a function"))


def _type(var: relax.Var) -> str:
    """Say a tensor's dtype and shape, in a line of its own."""
    if not isinstance(var.ty, relax.TensorType) or var.ty.shape is None:
        return ""
    sizes = [str(getattr(size, "value", size)) for size in var.ty.shape]
    return f"<br>{var.ty.dtype}[{_said(', '.join(sizes))}]"


def _said(text: str) -> str:
    """Keep what Mermaid reads as its own signs out of a label."""
    kept = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;"}
    return "".join(kept.get(sign, sign) for sign in text)
