"""Reading a partitioned module: a composite function is a layer, a region's function a `Region`.

Both forms are read: Relax's, where `MergeCompositeFunctions` keeps composite functions as local
ones, and Relay's, where `PartitionGraph` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import ir, relax

from ...errors import CompileError
from ...ir import graph
from ...ir.graph import is_call, key
from ...ir.partition.functions import attribute
from ..config import COMPILER, Config
from ..layers import Region, Value
from . import products, vector
from .scales import LayerMatch, Unsupported, value

__all__ = ["LayerMatch", "Unsupported", "config_of", "find", "kind", "region", "regions"]

#: By the operator that a layer is about: its name in the pattern table, and its reader.
READERS: dict[str, tuple[str, Callable[[relax.Expr], LayerMatch]]] = {
    "relax.qnn.conv2d": ("conv2d", products.convolution),
    "relax.qnn.dense": ("dense", products.dense),
    "relax.qnn.add": ("add", vector.add),
    "relax.add": ("add", vector.integer_add),
    "relax.nn.max_pool2d": ("max_pool2d", vector.max_pool),
    "relax.qnn.avg_pool2d": ("avg_pool2d", vector.average_pool),
    "relax.sum": ("mean", vector.mean),
    "relax.reshape": ("reshape", vector.view),
}
AROUND = ("relax.clip", "relax.maximum", "relax.minimum", "relax.qnn.requantize")


def find(root: relax.Expr) -> LayerMatch:
    """Read a layer from the nested calls that a whole pattern matched, or raise `Unsupported`."""
    name = _name(_core(root))
    if name in READERS:
        return READERS[name][1](root)
    if is_call(root, *AROUND):
        return vector.lone(root)
    raise Unsupported(f"no pattern takes {name.removeprefix('relax.') or type(root).__name__}")


def _core(root: relax.Expr) -> relax.Expr:
    """Find the operator that a match is about, behind what rescales, clips and biases it."""
    expr = root
    while is_call(expr, *AROUND, "relax.relay.nn.bias_add"):
        if not isinstance(expr.args[0], relax.Call):
            break
        expr = expr.args[0]
    return expr


def kind(root: relax.Expr) -> str:
    """Return the name of a match in the pattern table, such as ``"conv2d"``."""
    call = _core(root)
    name = READERS[_name(call)][0] if _name(call) in READERS else "rescale"
    return f"depthwise_{name}" if name == "conv2d" and products.by_channel(call) else name


def _name(expr: relax.Expr) -> str:
    named = isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op)
    return str(expr.op.name) if named else ""


def config_of(function: relax.Function) -> Config:
    """Return the machine of a region: its attribute ``npu.config``, or the default."""
    text = attribute(function, "npu.config")
    return Config.from_json(text) if text else Config()


def region(function: relax.Function) -> Region:
    """Read a region's function.

    Parameters
    ----------
    function : tvm.relax.Function
        A function for the machine, of a partitioned module.

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
    except Unsupported as error:
        where = f"the region {attribute(function, 'global_symbol')}"
        raise CompileError(error.what, where=where, fix=error.fix) from error


def regions(mod: ir.IRModule) -> dict[str, relax.Function]:
    """Return the functions of a partitioned module that are for the accelerator.

    Parameters
    ----------
    mod : ir.IRModule
        The result of `tvmlab.npu.partition`.

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
        #: The value of each variable: a tensor's own variable, a tuple of such, or a function.
        self.bound: dict[int, list[relax.Var] | relax.Function] = {}
        self.names: dict[int, str] = {}
        self.taken: set[str] = set()
        self.found: list[tuple[LayerMatch, list[relax.Var], relax.Var]] = []
        self.read: dict[int, LayerMatch] = {}

    def region(self) -> Region:
        function = self.function
        for param in function.params:
            self.bound[key(param)] = [param]
        for block in function.body.blocks:
            for binding in block.bindings:
                self._binding(binding)
        outputs = self._tensors(function.body.body)
        layouts = sorted({match.layout for match, _, _ in self.found if match.layout})
        if len(layouts) > 1:
            raise Unsupported(
                "the region has images in NCHW and in NHWC",
                fix="convert one to the other first (relax.transform.ConvertLayout)",
            )
        values: dict[str, Value] = {}
        for var in [*function.params, *(made for _, _, made in self.found)]:
            name = self._name(var)
            values[name] = value(name, var, (*layouts, "NCHW")[0])
        return Region(
            tuple(self._name(param) for param in function.params),
            tuple(self._name(var) for var in outputs),
            values,
            tuple(
                match.named([self._name(var) for var in inputs], self._name(made))
                for match, inputs, made in self.found
            ),
        )

    def _name(self, var: relax.Var) -> str:
        """Name a value, each another name."""
        if key(var) not in self.names:
            name, count = str(var.name), 0
            while name in self.taken:
                count += 1
                name = f"{var.name}_{count}"
            self.taken.add(name)
            self.names[key(var)] = name
        return self.names[key(var)]

    def _binding(self, binding: relax.Binding) -> None:
        bound = binding.value
        if isinstance(bound, relax.Function):
            self.bound[key(binding.var)] = bound
        elif isinstance(bound, relax.Call):
            match, inputs = self._call(bound)
            self.found.append((match, [self._tensors(expr)[0] for expr in inputs], binding.var))
            self.bound[key(binding.var)] = [binding.var]
        else:
            self.bound[key(binding.var)] = self._tensors(bound)

    def _tensors(self, expr: relax.Expr) -> list[relax.Var]:
        """Return the tensors that an expression of variables is made of."""
        if isinstance(expr, relax.Tuple):
            return [var for field in expr.fields for var in self._tensors(field)]
        if isinstance(expr, relax.TupleGetItem):
            return [self._tensors(expr.tuple_value)[expr.index]]
        found = self.bound.get(key(expr)) if isinstance(expr, relax.Var) else None
        if not isinstance(found, list):
            raise Unsupported(f"a region holds {expr}, which no layer makes")
        return found

    def _call(self, call: relax.Call) -> tuple[LayerMatch, list[relax.Expr]]:
        """Read a call of a composite function, or of an operator on its own."""
        function = call.op
        if isinstance(function, relax.Var):
            function = self.bound.get(key(function))
        if isinstance(function, ir.Op):
            match = find(call)
            return match, list(match.inputs)
        if not isinstance(function, relax.Function):
            raise Unsupported(f"a region calls {call.op}, which is no composite function")
        name = attribute(function, "Composite")
        places = {key(param): arg for param, arg in zip(function.params, call.args, strict=True)}
        # Patterns that ask for no constant leave constants outside.
        constants = {one: arg for one, arg in places.items() if isinstance(arg, ir.GenericConst)}
        if constants or key(function) not in self.read:
            try:
                self.read[key(function)] = find(_body(function, constants))
            except Unsupported as error:
                raise Unsupported(
                    f"the code generator has no layer for {name!r}: {error.what}",
                    fix=error.fix or "give its pattern a check, so that it stays on the CPU",
                ) from error
        match = self.read[key(function)]
        if any(key(one) not in places for one in match.inputs):
            raise Unsupported(f"{name!r} computes more than its one layer", fix="split its pattern")
        return match, [places[key(one)] for one in match.inputs]


def _body(function: relax.Function, constants: Mapping[int, relax.Expr]) -> relax.Expr:
    """Return a composite function's graph, with constants in the place of parameters."""
    root = graph.inline_bindings(function.body)
    if not constants:
        return root
    return graph.transform(root, lambda _, after: constants.get(key(after), after))
