"""Read a partitioned module: composite functions become layers, a region's function a `Region`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm import ir, relax
from tvm.ir.supply import UniqueNameSupply

from ...errors import CompileError
from ...ir import graph
from ...ir.graph import is_call, key
from ...ir.patterns.rewriter import attribute
from ..config import COMPILER, Config
from ..layers import Region
from . import operators as read
from .operators import Composite, LayerMatch, Unsupported, check, value

__all__ = ["Unsupported", "check", "config_of", "core", "find", "kind", "region", "regions"]

#: By a layer's main operator: its name in the pattern table, and its reader.
READERS: dict[str, tuple[str, Callable[[Composite], LayerMatch]]] = {
    "relax.qnn.conv2d": ("conv2d", read.convolution),
    "relax.qnn.dense": ("dense", read.dense),
    "relax.qnn.add": ("add", read.add),
    "relax.add": ("add", read.integer_add),
    "relax.nn.max_pool2d": ("max_pool2d", read.max_pool),
    "relax.qnn.avg_pool2d": ("avg_pool2d", read.average_pool),
    "relax.sum": ("mean", read.mean),
    "relax.reshape": ("reshape", read.view),
}
CONVERT = "convert one to the other first (relax.transform.ConvertLayout)"
#: The operators that can follow a main operator in a match.
BEHIND = (
    *("relax.clip", "relax.maximum", "relax.minimum"),
    *("relax.qnn.requantize", "relax.relay.nn.bias_add"),
)


def find(root: relax.Expr) -> LayerMatch:
    """Read a layer from the nested calls that a pattern matched, or raise `Unsupported`."""
    name = _name(root)
    what = name.removeprefix("relax.") or type(root).__name__
    check(name in READERS, f"no pattern takes {what}")
    match = Composite.of(root)
    check(
        match.name() == what, f"no pattern takes the operators that follow {what} together with it"
    )
    return READERS[name][1](match)


def core(root: relax.Expr) -> relax.Expr:
    """Find the main operator of a match, behind rescaling, clips and bias."""
    while is_call(root, *BEHIND) and isinstance(root.args[0], relax.Call):
        root = root.args[0]
    return root


def _name(root: relax.Expr) -> str:
    expr = core(root)
    named = isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op)
    return str(expr.op.name) if named else ""


def kind(root: relax.Expr) -> str:
    """Return a match's name in the pattern table, such as ``"conv2d"``, or an empty string."""
    name, _ = READERS.get(_name(root), ("", None))
    by_channel = name == "conv2d" and read.by_channel(core(root))
    return f"depthwise_{name}" if by_channel else name


def config_of(function: relax.Function) -> Config:
    """Return the machine of a region: its attribute ``npu.config``, or the default machine."""
    text = attribute(function, "npu.config")
    return Config.from_json(text) if text else Config()


def region(function: relax.Function) -> Region:
    """Read a function for the machine; raise `CompileError` if the machine cannot compute it."""
    try:
        return _Reader(function).region()
    except Unsupported as error:
        where = f"the region {attribute(function, 'global_symbol')}"
        raise CompileError(error.what, where=where, fix=error.fix) from error


def regions(mod: ir.IRModule) -> dict[str, relax.Function]:
    """Return the accelerator functions of a partitioned module, sorted by name."""
    found = {
        var.name_hint: function
        for var, function in mod.functions_items()
        if isinstance(function, relax.Function) and attribute(function, "Codegen") == COMPILER
    }
    return dict(sorted(found.items()))


class _Reader:
    def __init__(self, function: relax.Function) -> None:
        self.function = function
        # The value of each variable: the variable itself if it is a tensor.
        self.bound: dict[int, relax.Expr] = {key(param): param for param in function.params}
        self.read: dict[int, LayerMatch] = {}

    def region(self) -> Region:
        function, found = self.function, []
        for var, held in bindings(function.body):
            self.bound[key(var)] = self.bound.get(key(held), held)
            if isinstance(held, relax.Call):
                match, operands = self._call(held)
                found.append((match, [self._tensor(one) for one in operands], var))
                self.bound[key(var)] = var
        layouts = sorted({match.layout for match, _, _ in found if match.layout})
        check(len(layouts) <= 1, "the region has images in NCHW and in NHWC", CONVERT)
        variables = [*function.params, *(made for *_, made in found)]
        unique, layout = UniqueNameSupply(), (*layouts, "NCHW")[0]
        names = {var: str(unique.fresh_name(var.name)) for var in variables}
        values = {name: value(name, var, layout) for var, name in names.items()}
        out = self.bound.get(key(function.body.body), function.body.body)
        outputs = list(out.fields) if isinstance(out, relax.Tuple) else [out]
        layers = []
        for match, operands, made in found:
            inputs = tuple(names[var] for var in operands)
            layers.append(replace(match.layer, inputs=inputs, output=names[made]))
        inputs = tuple(names[param] for param in function.params)
        results = tuple(names[self._tensor(var)] for var in outputs)
        return Region(inputs, results, values, tuple(layers))

    def _tensor(self, expr: relax.Expr) -> relax.Var:
        found = self.bound.get(key(expr), expr)
        check(isinstance(found, relax.Var), f"a region holds {expr}, which no layer makes")
        return found

    def _call(self, call: relax.Call) -> tuple[LayerMatch, list[relax.Expr]]:
        function = self.bound.get(key(call.op), call.op)
        if isinstance(function, ir.Op):
            match = find(call)
            return match, list(match.inputs)
        composite = isinstance(function, relax.Function)
        check(composite, f"a region calls {call.op}, which is not a composite function")
        name = attribute(function, "Composite")
        places = {key(param): arg for param, arg in zip(function.params, call.args, strict=True)}
        # Patterns without is_const leave constants outside the composite function.
        constants = {one: arg for one, arg in places.items() if isinstance(arg, ir.GenericConst)}
        if constants or key(function) not in self.read:
            root = graph.inline_bindings(function.body)
            if constants:
                root = graph.transform(root, lambda _, after: constants.get(key(after), after))
            try:
                self.read[key(function)] = find(root)
            except Unsupported as error:
                what = f"the code generator has no layer for {name!r}: {error.what}"
                fix = error.fix or "give its pattern a check, so that it stays on the CPU"
                raise Unsupported(what, fix=fix) from error
        match = self.read[key(function)]
        inside = all(key(one) in places for one in match.inputs)
        check(inside, f"{name!r} computes more than its one layer", "split its pattern")
        return match, [places[key(one)] for one in match.inputs]


def bindings(body: relax.SeqExpr) -> list[tuple[relax.Var, relax.Expr]]:
    """List the bindings of a body in order, as variables and values."""
    return [(one.var, one.value) for block in body.blocks for one in block.bindings]
