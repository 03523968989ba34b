"""A quantized network cut at its quantizes, so that each piece is computed from given integers.

Every piece shows its own rounding then, and not what those before it made of the input.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from tests.qnn.graphs import equal, well_typed
from tests.qnn.run import run
from tvmlab.ir import graph
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger
from tvmlab.qnn.transform.fake_quantization import Rewriter, rounding_of
from tvmlab.qnn.transform.reading import QUANTIZES, bindings, operator


def both(mod, rounding="None"):
    """Rewrite `main`; give the integer module, and what its aliases stand for, by name."""
    rewriter = Rewriter(rounding)
    function = rewriter.function(mod["main"])
    # Names need not be unique: a value that nothing read is gone, and another may have its name.
    kept = {*function.params, *rewriter.aliases, *(var for var, _ in bindings(function.body))}
    counts = Counter(var.name for var in kept)
    aliases = {
        var.name: expr.name
        for var, expr in rewriter.aliases.items()
        if isinstance(expr, relax.Var) and expr in kept and counts[expr.name] == 1
    }
    return tvm.IRModule({"main": function}), aliases


def differences(mod, *inputs, rounding="None"):
    """Give, for each quantize of `mod`, how many steps the integer form is off.

    Each quantize is computed from the integers that the integer form had before it, so that one
    operator's rounding is seen and not what it becomes further on.
    """
    integer, aliases = both(mod, rounding)
    _, integers = run(integer, *inputs)
    for name, other in aliases.items():
        while other in aliases:
            other = aliases[other]
        if name not in integers and other in integers:
            integers[name] = integers[other]
    whole = {k: v for k, v in integers.items() if not isinstance(v, tuple) and v.dtype.kind in "iu"}
    _, floats = run(mod, *inputs, forced=whole)
    return {
        name: np.abs(value.astype(np.int64) - whole[name].astype(np.int64))
        for name, value in floats.items()
        if name in whole and value.dtype.kind in "iu"
    }


def check(mod, *inputs, rounding="None", floats=()):
    """Rewrite: the types hold, twice is as once, and each quantize is at most a step off.

    `floats` are the operators that stay float, or None where any may.
    """
    made = FakeQuantizationToInteger(rounding=rounding)(mod)
    well_typed(made)
    assert equal(FakeQuantizationToInteger(rounding=rounding)(made), made)
    assert floats is None or [one.operator for one in float_operators(made)] == list(floats)
    steps = differences(mod, *inputs, rounding=rounding)
    assert steps or floats != ()
    assert max((int(step.max()) for step in steps.values()), default=0) <= 1
    return made


class Place(NamedTuple):
    """A quantized value; two that agree in all of this have the same order on both sides."""

    shape: tuple[int, ...]
    dtype: str
    scale: float
    zero: int


class Cut(NamedTuple):
    """A network in pieces, or one that shows all of its values, and where they lie.

    `main` takes the inputs, and in pieces one array for each value; it gives all values, then the
    result.
    """

    mod: tvm.IRModule
    places: list[Place]


def quantizes(mod: tvm.IRModule) -> dict[str, Place]:
    """List the quantizes of a network as its frontend imported it, by the variable's name."""
    found = {}
    for var, call in bindings(mod["main"].body):
        if operator(call) in QUANTIZES:
            scale, zero = (arg.value.numpy() for arg in call.args[1:3])
            assert scale.size == zero.size == 1, "what flows has one scale"
            shape = tuple(int(size) for size in call.ty.shape)
            dtype = str(call.attrs["out_dtype"])
            place = Place(shape, dtype, float(np.float32(scale.item())), int(zero.item()))
            found[str(var.name)] = place
    return found


def cut(mod: tvm.IRModule, rounding: str | None = None, pieces: bool = True) -> Cut:
    """Rewrite a network to integers and cut it at every quantize that it was imported with.

    Without `pieces` the network stays whole and returns all quantized values as well.
    """
    integer, aliases = both(mod, rounding or rounding_of(mod))
    every = list(bindings(integer["main"].body))
    made = {str(var.name): var for var, _ in every}
    targets: dict[str, Place] = {}
    for name, place in quantizes(mod).items():
        while name not in made:
            name = aliases[name]
        assert name not in targets or targets[name] == place
        targets[name] = place
    main = integer["main"]
    given = {}
    if pieces:
        given = {made[name]: relax.Var(f"given_{name}", made[name].ty) for name in targets}
    kept = [relax.VarBinding(var, graph.substitute(value, given)) for var, value in every]
    tail = graph.substitute(_aliased(main.body.body, kept), given)
    results = relax.Tuple([*(made[name] for name in targets), tail])
    out = relax.Var("out", results.ty)
    block = relax.DataflowBlock([*kept, relax.VarBinding(out, results)])
    body = relax.SeqExpr([block], out)
    relax.expr._update_type(body, out.ty)
    function = relax.Function([*main.params, *given.values()], body)
    cut_mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    relax.analysis.well_formed(cut_mod)
    return Cut(cut_mod, list(targets.values()))


def matched(places: list[Place], others: list[Place]) -> list[int]:
    """Find each place among others; of equal ones the first is the first."""
    free: dict[Place, list[int]] = {}
    for number, other in enumerate(others):
        free.setdefault(other, []).append(number)
    return [free[place].pop(0) for place in places]


def _aliased(expr: relax.Expr, kept: list[Any]) -> relax.Expr:
    """Follow a variable that leaves the dataflow block to what it stands for inside."""
    inside = {b.var: b.value for b in kept if isinstance(b.value, relax.Var)}
    while expr in inside:
        expr = inside[expr]
    return expr
