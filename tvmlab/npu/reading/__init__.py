"""Reading what partitioning made: a composite function is a layer, a region's function a `Region`.

Both forms are read: Relax's, where `MergeCompositeFunctions` keeps composite functions as local
ones, and Relay's, where `PartitionGraph` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import ir, relax

from ...errors import CompileError
from ...ir import graph
from ...ir.graph import is_call
from ...ir.partition.functions import attribute
from ..config import COMPILER, Config
from ..layers import Layer, Region, Value
from . import products, sums, windows
from .found import Found, value
from .scales import Refusal

__all__ = ["Refusal", "composite", "config_of", "core", "find", "kind", "region", "regions"]

#: By the operator that a layer is about.
READERS: dict[str, Callable[[relax.Expr], Found]] = {
    "relax.qnn.conv2d": products.convolution,
    "relax.qnn.dense": products.dense,
    "relax.qnn.add": sums.add,
    "relax.add": sums.integer_add,
    "relax.nn.max_pool2d": windows.max_pool,
    "relax.qnn.avg_pool2d": windows.average_pool,
    "relax.sum": windows.mean,
    "relax.reshape": windows.view,
}
#: The same in the pattern table.
KINDS = {
    "relax.qnn.conv2d": "conv2d",
    "relax.qnn.dense": "dense",
    "relax.qnn.add": "add",
    "relax.add": "add",
    "relax.nn.max_pool2d": "max_pool2d",
    "relax.qnn.avg_pool2d": "avg_pool2d",
    "relax.sum": "mean",
    "relax.reshape": "reshape",
}
AROUND = ("relax.clip", "relax.maximum", "relax.minimum", "relax.qnn.requantize")


def find(root: relax.Expr) -> Found:
    """Read a layer from the graph of a match.

    Parameters
    ----------
    root : tvm.relax.Expr
        What the whole pattern matched: nested calls; what is not of the pattern is not looked at.

    Returns
    -------
    Found

    Raises
    ------
    Refusal
        If the machine does not take it.
    """
    name = _name(core(root))
    if name in READERS:
        return READERS[name](root)
    if is_call(root, *AROUND):
        return sums.lone(root)
    raise Refusal(f"no pattern takes {name.removeprefix('relax.') or type(root).__name__}")


def core(root: relax.Expr) -> relax.Expr:
    """Find the operator that a match is about, behind what rescales, clips and biases it."""
    expr = root
    while is_call(expr, *AROUND, "relax.relay.nn.bias_add"):
        if not isinstance(expr.args[0], relax.Call):
            break
        expr = expr.args[0]
    return expr


def kind(root: relax.Expr) -> str:
    """Give the name of a match in the pattern table, such as ``"conv2d"``."""
    call = core(root)
    name = KINDS.get(_name(call), "rescale")
    if name == "conv2d" and products.by_channel(call):
        return f"depthwise_{name}"
    return name


def _name(expr: relax.Expr) -> str:
    named = isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op)
    return str(expr.op.name) if named else ""


def composite(function: relax.Function, constants: Mapping[int, relax.Expr]) -> Found:
    """Read a composite function.

    Parameters
    ----------
    function : tvm.relax.Function
        The function.
    constants : mapping
        What is passed for parameters that are constants, by the parameters' identities: patterns
        that ask for no constant leave them outside.

    Raises
    ------
    Refusal
        If the machine does not take it.
    """
    root = graph.inline_bindings(function.body)
    if constants:
        root = graph.transform(root, lambda _, after: constants.get(graph.key(after), after))
    return find(root)


def config_of(function: relax.Function) -> Config:
    """Give the machine that a region was cut for: its attribute ``npu.config``, or the default."""
    text = attribute(function, "npu.config")
    return Config.from_json(text) if text else Config()


def region(function: relax.Function, config: Config | None = None) -> Region:
    """Read a region's function.

    Parameters
    ----------
    function : tvm.relax.Function
        What partitioning made for the machine.
    config : Config, optional
        The machine, for the code generator's sake: what a region means does not depend on sizes.

    Returns
    -------
    Region

    Raises
    ------
    tvmlab.errors.CompileError
        If there is something in it that the machine does not take.
    """
    try:
        return _Reader(function).region()
    except Refusal as refusal:
        where = f"the region {attribute(function, 'global_symbol')}"
        raise CompileError(refusal.what, where=where, fix=refusal.fix) from refusal


def regions(mod: ir.IRModule) -> dict[str, relax.Function]:
    """Give the functions of a partitioned module that are for the accelerator.

    Parameters
    ----------
    mod : ir.IRModule
        What `tvmlab.npu.partition` gave.

    Returns
    -------
    dict of str to relax.Function
        By name, in the order of the names.
    """
    found = {
        var.name_hint: function
        for var, function in mod.functions_items()
        if isinstance(function, relax.Function) and attribute(function, "Codegen") == COMPILER
    }
    return dict(sorted(found.items()))


class _Reader:
    """One walk over a region's function."""

    def __init__(self, function: relax.Function) -> None:
        self.function = function
        #: What is bound to each variable: a tensor's own variable, a tuple of such, or a function.
        self.bound: dict[int, list[relax.Var] | relax.Function] = {}
        self.names: dict[int, str] = {}
        self.taken: set[str] = set()
        self.found: list[tuple[Found, list[relax.Var], relax.Var]] = []
        self.read: dict[int, Found] = {}

    def region(self) -> Region:
        function = self.function
        for param in function.params:
            self.bound[graph.key(param)] = [param]
            self._name(param)
        for block in function.body.blocks:
            for binding in block.bindings:
                self._binding(binding)
        outputs = self._tensors(function.body.body)
        layout = self._layout()
        values: dict[str, Value] = {}
        for var in [*function.params, *(made for _, _, made in self.found)]:
            name = self._name(var)
            values[name] = value(name, var, layout)
        layers: list[Layer] = [
            found.named([self._name(var) for var in inputs], self._name(made))
            for found, inputs, made in self.found
        ]
        return Region(
            tuple(self._name(param) for param in function.params),
            tuple(self._name(var) for var in outputs),
            values,
            tuple(layers),
        )

    def _name(self, var: relax.Var) -> str:
        """Name a value, each another name."""
        known = self.names.get(graph.key(var))
        if known is None:
            known, count = str(var.name), 0
            while known in self.taken:
                count += 1
                known = f"{var.name}_{count}"
            self.taken.add(known)
            self.names[graph.key(var)] = known
        return known

    def _layout(self) -> str:
        """Give the layout of the region's images."""
        found = sorted({found.layout for found, _, _ in self.found if found.layout})
        if len(found) > 1:
            raise Refusal(
                "the region has images in NCHW and in NHWC",
                fix="convert one to the other first (relax.transform.ConvertLayout)",
            )
        return found[0] if found else "NCHW"

    def _binding(self, binding: relax.Binding) -> None:
        bound = binding.value
        if isinstance(bound, relax.Function):
            self.bound[graph.key(binding.var)] = bound
        elif isinstance(bound, relax.Call):
            self._call(bound, binding.var)
            self.bound[graph.key(binding.var)] = [binding.var]
        else:
            self.bound[graph.key(binding.var)] = self._tensors(bound)

    def _tensors(self, expr: relax.Expr) -> list[relax.Var]:
        """Give the tensors that an expression of variables is made of."""
        if isinstance(expr, relax.Tuple):
            return [var for field in expr.fields for var in self._tensors(field)]
        if isinstance(expr, relax.TupleGetItem):
            return [self._tensors(expr.tuple_value)[expr.index]]
        found = self.bound.get(graph.key(expr)) if isinstance(expr, relax.Var) else None
        if not isinstance(found, list):
            raise Refusal(f"a region holds {expr}, which no layer makes")
        return found

    def _call(self, call: relax.Call, var: relax.Var) -> None:
        """Read a call of a composite function, or of an operator on its own."""
        function = call.op
        if isinstance(function, relax.Var):
            function = self.bound.get(graph.key(function))
        if isinstance(function, ir.Op):
            found = find(call)
            self.found.append((found, self._inputs(found.inputs), var))
            return
        if not isinstance(function, relax.Function):
            raise Refusal(f"a region calls {call.op}, which is no composite function")
        given = list(zip(function.params, call.args, strict=True))
        constants = {graph.key(p): arg for p, arg in given if isinstance(arg, ir.GenericConst)}
        if constants or graph.key(function) not in self.read:
            try:
                self.read[graph.key(function)] = composite(function, constants)
            except Refusal as refusal:
                name = attribute(function, "Composite")
                raise Refusal(
                    f"the code generator has no layer for {name!r}: {refusal.what}",
                    fix=refusal.fix or "give its pattern a check, so that it stays on the CPU",
                ) from refusal
        found = self.read[graph.key(function)]
        places = {graph.key(param): arg for param, arg in given}
        if any(graph.key(one) not in places for one in found.inputs):
            raise Refusal(
                f"{attribute(function, 'Composite')!r} computes more than its one layer",
                fix="split its pattern",
            )
        self.found.append((found, self._inputs([places[graph.key(e)] for e in found.inputs]), var))

    def _inputs(self, exprs: tuple[relax.Expr, ...] | list[relax.Expr]) -> list[relax.Var]:
        return [self._tensors(expr)[0] for expr in exprs]
