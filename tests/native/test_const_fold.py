"""`QnnQuantizeConstFold` in C++: against the same pass in Python, and among other passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tests.short import examples
from tvmlab import native
from tvmlab.errors import InputError
from tvmlab.ir import dialect, graph
from tvmlab.qnn import op
from tvmlab.qnn.transform import QnnQuantizeConstFold

REWRITE = Path(__file__).parents[1] / "data" / "relay" / "rewrite"
DTYPES = ("int8", "uint8", "int16", "int32")
FOUR = [1.0, -2.0, 3.25, 0.5]


def in_python(mod):
    """Fold with the same pass, written in Python."""
    return QnnQuantizeConstFold()(mod)


def form(function):
    """Give a function without what the two may differ in: aliases, dead bindings, their order."""
    return graph.to_anf(function.params, graph.inline_bindings(function.body))


def equal(a, b):
    return tvm_ffi.structural_equal(a, b, map_free_vars=True)


def fold(mod):
    return native.qnn_quantize_const_fold()(mod)


def array(value, dtype="float32"):
    return relax.const(np.asarray(value, dtype))


def quantize(data, scale=0.5, zero=0, **attributes):
    return op.quantize(array(data), array(scale), array(zero, "int32"), **attributes)


def dequantize(data):
    return op.dequantize(data, array(0.5), array(0, "int32"))


def module(build, *, dataflow=True):
    """Make a module of one function of x; `build` gets the builder and x, and gives the result."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        if dataflow:
            with builder.dataflow():
                result = builder.emit_output(build(builder, x))
        else:
            result = builder.emit(build(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def values(mod):
    """List what is bound in main."""
    return [one.value for block in mod["main"].body.blocks for one in block.bindings]


def dtypes(mod):
    """List the dtypes of the constant arrays of main, without scalars."""
    operands = [operand for call in values(mod) for operand in call.args]
    kinds = [c.ty for c in operands if isinstance(c, tvm.ir.GenericConst)]
    return [str(kind.dtype) for kind in kinds if kind.ndim]


def quantizes(mod):
    """Count the quantizes that are left."""
    found = []

    def visit(expr):
        if isinstance(expr, relax.Call) and expr.op == tvm.ir.Op.get("relax.qnn.quantize"):
            found.append(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return len(found)


# ---- the same as in Python ----


@pytest.mark.parametrize("frontend", ["torch", "tflite"])
def test_relays_modules(frontend):
    from tvmlab import relay

    before, after = (
        relay.fromtext((REWRITE / f"{frontend}_{when}.relay").read_text())
        for when in ("before", "after")
    )
    result = fold(before)
    assert equal(result["main"], in_python(before)["main"])
    assert quantizes(before) - quantizes(result) == (2 if frontend == "torch" else 0)
    # The pass that removes clips makes the rest of `after`; the constants are there already.
    assert dtypes(result) == dtypes(after)


@st.composite
def modules(draw):
    """Draw a module: quantizes of constants and of others, in every way that they are written."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    steps = draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    bound = [draw(st.booleans()) for _ in range(4 * len(steps))]

    def build(builder, x):
        seen = [array(rng.standard_normal(4) * 40)]

        def maybe(expr):
            return builder.emit(expr) if bound.pop() else expr

        for step in steps:
            dtype = str(rng.choice(DTYPES))
            many = [(), (1,), (4,)]
            scale = maybe(array(rng.uniform(0.1, 2, many[rng.integers(3)])))
            zero = maybe(array(rng.integers(0, 9, many[rng.integers(3)]), "int32"))
            data = [maybe(array(rng.standard_normal(4) * 40)), x, seen[-1]][min(step, 2)]
            call = op.quantize(data, scale, zero, int(rng.integers(-1, 1)), dtype)
            if step == 3:
                seen.append(data)  # The next one that asks gets a shared constant.
            made = builder.emit(call)
            if step == 4:
                made = builder.emit(made)
            x = builder.emit(relax.op.add(x, builder.emit(op.dequantize(made, scale, zero))))
        return x

    return module(build, dataflow=draw(st.booleans()))


@settings(max_examples=examples(200))
@given(modules())
def test_any_module(mod):
    result = fold(mod)
    relax.analysis.check_well_formed(result)
    assert equal(form(result["main"]), form(in_python(mod)["main"]))
    assert fold(result)["main"].same_as(result["main"])
    assert tvm.ir.save_json(fold(mod)) == tvm.ir.save_json(result)


# ---- what is folded, and where ----


def test_variables_that_stand_for_constants_count():
    def build(builder, x):
        data = builder.emit(builder.emit(array(FOUR)))
        scale = builder.emit(array(0.5))
        weight = builder.emit(op.quantize(data, scale, array(0, "int32")))
        return relax.op.add(x, builder.emit(dequantize(builder.emit(weight))))

    for dataflow in (True, False):
        result = fold(module(build, dataflow=dataflow))
        assert [call.op.name for call in values(result)] == ["relax.qnn.dequantize", "relax.add"]
        assert values(result)[0].args[0].value.numpy().tolist() == [2, -4, 7, 1]


def test_branches_and_inner_functions():
    condition = relax.Var("c", relax.TensorType((), "bool"))
    x, y = (relax.Var(name, relax.TensorType((4,), "float32")) for name in "xy")
    builder = relax.BlockBuilder()

    def side(scale):
        value = quantize(FOUR, scale)
        var = relax.Var("v", value.ty)
        return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, value)])], var)

    with builder.function("main", [condition, x]):
        chosen = builder.emit(relax.If(condition, side(0.5), side(1.0)))
        inner = builder.emit(relax.Function([y], side(0.25), relax.TensorType((4,), "int8")))
        both = builder.emit(relax.Tuple([chosen, builder.emit(relax.Call(inner, [x]))]))
        builder.emit_func_output(both)
    mod = builder.get()
    result = fold(mod)
    relax.analysis.check_well_formed(result)
    assert (quantizes(mod), quantizes(result)) == (3, 0)
    lifted = relax.transform.LambdaLift()(result)
    machine = relax.VirtualMachine(tvm.compile(lifted, "llvm"), tvm.cpu())
    arguments = tvm.runtime.tensor(np.bool_(True)), tvm.runtime.tensor(np.zeros(4, "float32"))
    assert [part.numpy().tolist() for part in machine["main"](*arguments)] == [
        [2, -4, 7, 1],
        [4, -8, 13, 2],
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: op.quantize(x, array(0.5), array(0, "int32")),
        lambda x: op.quantize(array(FOUR, "float16"), array(0.5), array(0, "int32")),
        lambda x: relax.op.quantize(array(FOUR), array(0.5), array(0, "int8"), 0),
    ],
    ids=["a variable", "float16", "Relax's own"],
)
def test_what_it_does_not_fold_stays_the_same_object(call):
    mod = module(lambda builder, x: relax.Tuple([x, builder.emit(array(1)), call(x)]))
    assert fold(mod)["main"].same_as(mod["main"])


BAD = {
    "NaN": ([1, np.nan, 3, 4], 0.5, 0, "element 1 of x is NaN"),
    "scale 0": (FOUR, 0, 0, r"scale\[0\] is 0"),
    "zero point": (FOUR, 1, [0, 0, 0, 128], r"zero_point\[3\] is 128; values of int8"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_constants(name):
    data, scale, zero, words = BAD[name]
    # As a module from a file comes: the operator's builder refuses it at once.
    operands = [array(data), array(scale), array(zero, "int32")]
    attributes = {"axis": 0, "out_dtype": "int8", "rounding": "None"}
    mod = module(lambda *_: dialect.typed_call("relax.qnn.quantize", operands, attributes))
    with pytest.raises(InputError, match=words) as caught:
        tvm.transform.Sequential([native.qnn_quantize_const_fold()])(mod)
    assert caught.value.where == "qnn.quantize"
    with pytest.raises(InputError):
        in_python(mod)
