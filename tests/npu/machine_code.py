"""Partitioned modules, told by what they compute: operators, composites, regions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from tests.qnn.graphs import Network, scale, zero
from tests.qnn.run import run
from tvmlab import npu, qnn
from tvmlab.ir.patterns.rewriter import attribute as called
from tvmlab.npu import codegen, simulator

SHAPE = (1, 4, 3, 3)


def regions_of(mod: ir.IRModule) -> list[relax.Function]:
    return list(codegen.regions(mod).values())


@dataclass(frozen=True)
class Cut:
    """The results of ``main``, and the composites, inputs and results of each region.

    Values are told by all that they come from.
    """

    results: list[str]
    regions: frozenset[tuple[Any, ...]]


def cut(mod: ir.IRModule) -> Cut:
    teller = _Teller(mod)
    main = mod["main"]
    results = teller.function(main, [f"input {i}" for i in range(len(main.params))])
    return Cut(results, frozenset(teller.regions))


def _digest(*parts: Any) -> str:
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:16]


class _Teller:
    def __init__(self, mod: ir.IRModule) -> None:
        self.mod = mod
        self.regions: list[tuple[Any, ...]] = []
        self.composites: list[tuple[str, str]] = []

    def function(self, function: relax.Function, args: Sequence[Any]) -> list[Any]:
        values: dict[relax.Var, Any] = dict(zip(function.params, args, strict=True))
        for block in function.body.blocks:
            for binding in block.bindings:
                values[binding.var] = self.value(binding.value, values)
        made = self.value(function.body.body, values)
        return made if isinstance(made, list) else [made]

    def value(self, expr: relax.Expr, values: dict[relax.Var, Any]) -> Any:
        if isinstance(expr, relax.Var):
            return values[expr]
        if isinstance(expr, relax.Function):
            return expr
        if isinstance(expr, ir.GenericConst):
            array = expr.value.numpy()
            return _digest(array.dtype, array.shape, array.tobytes())
        if isinstance(expr, relax.Tuple):
            return [self.value(field, values) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self.value(expr.tuple_value, values)[expr.index]
        if not isinstance(expr, relax.Call):
            return str(expr)
        args = [self.value(arg, values) for arg in expr.args]
        if isinstance(expr.op, ir.Op):
            return _digest(expr.op.name, sorted(map(str, _items(expr))), *args)
        target = self.mod[expr.op] if isinstance(expr.op, ir.GlobalVar) else expr.op
        function = self.value(target, values)
        outside, self.composites = self.composites, []
        made = self.function(function, args)
        if name := called(function, "Composite"):
            outside.append((name, made[0]))
        if called(function, "Codegen"):
            inside = frozenset(Counter(self.composites).items())
            self.regions.append((inside, frozenset(args), frozenset(made)))
        self.composites = outside
        return made[0] if len(made) == 1 else made


def _items(call: relax.Call) -> list[Any]:
    if isinstance(call.attrs, ir.DictAttrs):
        return list(call.attrs.items())
    return [str(call.attrs)]


def upstream(mod: ir.IRModule) -> ir.IRModule:
    """Partition a module with Relax's two passes instead of Relay's four."""
    patterns = npu.relax_patterns(npu.pattern_table())
    fused = relax.transform.FuseOpsByPattern(patterns, bind_constants=True)(mod)
    return relax.transform.MergeCompositeFunctions()(fused)


def simulated(mod: ir.IRModule, *inputs: Any) -> Any:
    """Run a partitioned module: regions in the simulator, the rest in NumPy."""
    functions = {name: partial(_call, one) for name, one in codegen.regions(mod).items()}
    return run(mod, *inputs, functions=functions)[0]


def _call(function: relax.Function, *inputs: Any) -> Any:
    found = simulator.simulate(codegen.program(function).to_bytes(), inputs)
    return found[0] if len(found) == 1 else tuple(found)


class Bytes(Network):
    """Builds modules whose values are all uint8 of one shape, so that any graph can be made.

    `conv`, `add` and `pool` are for the accelerator, `turn` and `mask` are not.
    """

    def __init__(self, inputs: int = 1, seed: int = 0) -> None:
        super().__init__(*[(SHAPE, "uint8")] * inputs)
        self.rng = np.random.default_rng(seed)

    def sums(self, x: relax.Expr, **how: Any) -> relax.Var:
        w = relax.const(self.rng.integers(-9, 9, (4, 4, 1, 1)).astype("int8"))
        points = zero(7), zero(0), scale(0.5), scale(0.25)
        return self.emit(qnn.op.conv2d(x, w, *points, (1, 1), 4, **how))

    def requantized(self, sums: relax.Expr) -> relax.Var:
        return self.emit(
            qnn.op.requantize(
                sums, scale(0.125), zero(0), scale(2.0), zero(3), 1, "UPWARD", out_dtype="uint8"
            )
        )

    def conv(self, x: relax.Expr) -> relax.Var:
        return self.requantized(self.sums(x))

    def add(self, x: relax.Expr, y: relax.Expr) -> relax.Var:
        points = scale(0.5), zero(3), scale(0.25), zero(4), scale(0.75), zero(5)
        return self.emit(qnn.op.add(x, y, *points, rounding="UPWARD"))

    def pool(self, x: relax.Expr) -> relax.Var:
        return self.emit(op.nn.max_pool2d(x, (3, 3), padding=1))

    def turn(self, x: relax.Expr) -> relax.Var:
        return self.emit(op.permute_dims(x, [0, 1, 3, 2]))

    def mask(self, x: relax.Expr, y: relax.Expr) -> relax.Var:
        return self.emit(op.bitwise_and(x, y))

    def module(self, *results: relax.Expr) -> ir.IRModule:
        mod = super().module(*results)
        mod["main"] = relax.analysis.remove_all_unused(mod["main"])
        return mod


STEPS: dict[str, int] = {"conv": 1, "add": 2, "pool": 1, "turn": 1, "mask": 2}


def drawn(choose: Callable[[Sequence[Any]], Any], steps: int, results: int) -> ir.IRModule:
    net = Bytes(2)
    values = list(net.inputs)
    for _ in range(steps):
        name = choose(sorted(STEPS))
        operands = [choose(values[-6:]) for _ in range(STEPS[name])]
        values.append(getattr(net, name)(*operands))
    made = values[2:]
    return net.module(*(choose(made) for _ in range(results - 1)), made[-1])


def convolution(
    size: tuple[int, ...] = (1, 8, 8, 16),
    outputs: int = 16,
    kernel: tuple[int, int] = (3, 3),
    pads: tuple[int, ...] = (1, 1, 1, 1),
    layout: str = "NHWC",
    **how: Any,
) -> ir.IRModule:
    """Make a module of a quantized convolution and its requantize; `size` is NHWC."""
    shape = [size["NHWC".index(letter)] for letter in layout]
    net, axis = Network((shape, "int8")), layout.index("C")
    rng = np.random.default_rng(0)
    weights = relax.const(rng.integers(-127, 128, (*kernel, size[3], outputs)).astype("int8"))
    points = zero(3), zero(0), scale(0.1), scale(0.02)
    how = {"padding": pads, "data_layout": layout, "kernel_layout": "HWIO", **how}
    call = qnn.op.conv2d(net.inputs[0], weights, *points, kernel, outputs, **how)
    points = scale(0.002), zero(0), scale(0.1), zero(-4)
    return net.module(net.emit(qnn.op.requantize(net.emit(call), *points, axis, "UPWARD")))
