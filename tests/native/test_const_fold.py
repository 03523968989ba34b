"""`QnnQuantizeConstFold` in C++: against the same pass in Python, and at its edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tests.native.const_fold import (
    DTYPES,
    FOUR,
    array,
    chain,
    dequantize,
    equal,
    fold,
    form,
    in_python,
    module,
    numbers,
    quantize,
    quantizes,
    values,
)
from tvmlab import native
from tvmlab.qnn import op

REWRITE = Path(__file__).parents[1] / "data" / "relay" / "rewrite"

# ---- the same as in Python ----


@pytest.mark.parametrize("frontend", ["torch", "tflite"])
def test_relays_modules(frontend):
    pytest.importorskip("lark", reason="reading Relay text needs lark")
    from tvmlab import relay

    before, after = (
        relay.fromtext((REWRITE / f"{frontend}_{when}.relay").read_text())
        for when in ("before", "after")
    )
    result = fold(before)
    assert equal(result["main"], in_python(before)["main"])
    assert quantizes(before) - quantizes(result) == (2 if frontend == "torch" else 0)
    # The pass that removes clips makes the rest of `after`; the constants are there already.
    kinds = [str(c.ty.dtype) for call in values(result) for c in call.args if is_array(c)]
    assert kinds == [str(c.ty.dtype) for call in values(after) for c in call.args if is_array(c)]


def is_array(expr):
    return isinstance(expr, tvm.ir.GenericConst) and expr.ty.ndim > 0


@st.composite
def modules(draw):
    """Draw a module: quantizes of constants and of others, in every way that they are written."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    steps = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
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
            if step == 3:
                data = array(rng.standard_normal(4), "float16")
            call = op.quantize(data, scale, zero, int(rng.integers(-1, 1)), dtype)
            if step == 4:
                seen.append(data)  # The next one that asks gets a shared constant.
            made = builder.emit(call)
            if step == 5:
                made = builder.emit(made)
            x = builder.emit(relax.op.add(x, builder.emit(op.dequantize(made, scale, zero))))
        return x

    return module(build, dataflow=draw(st.booleans()))


@settings(max_examples=100)
@given(modules())
def test_any_module(mod):
    result = fold(mod)
    relax.analysis.check_well_formed(result)
    assert equal(form(result["main"]), form(in_python(mod)["main"]))
    assert fold(result)["main"].same_as(result["main"])
    assert tvm.ir.save_json(fold(mod)) == tvm.ir.save_json(result)


def test_ten_thousand_operators():
    mod = chain(3334, lambda builder, i: builder.emit(quantize(numbers(i))))
    quantized = [native.quantize(numbers(i), 0.5) for i in range(3334)]
    assert equal(fold(mod)["main"], chain(3334, lambda _, i: relax.const(quantized[i]))["main"])


# ---- what is folded, and where ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_scale_a_channel(dtype):
    data = np.random.default_rng(0).standard_normal((2, 3, 5)).astype("float32") * 100
    scale, zero = np.float32([0.5, 0.25, 2]), np.int32([0, 3, 9])
    mod = module(lambda *_: quantize(data, scale, zero, axis=1, out_dtype=dtype))
    (constant,) = values(fold(mod))
    wide = "int32" if dtype == "int16" else dtype  # in int32 these values are as they are in int16
    expected = native.quantize(data, scale, zero, axis=1, dtype=wide)
    np.testing.assert_array_equal(constant.value.numpy(), expected)
    assert constant.value.numpy().dtype == dtype
    assert equal(constant.ty, mod["main"].ret_ty)


def test_int16_saturates():
    ends = [-1e30, -32769, -32768, 32767.4, 32768, 1e30]
    (constant,) = values(fold(module(lambda *_: quantize(ends, 1, 0, out_dtype="int16"))))
    assert constant.value.numpy().tolist() == [-32768, -32768, -32768, 32767, 32767, 32767]


def test_every_float16_number():
    halves = np.arange(1 << 16, dtype="uint16").view("float16")
    halves = halves[~np.isnan(halves)]
    scale = array(2.0**-24)  # The smallest number above zero: all that int32 holds come out whole.
    call = op.quantize(array(halves, "float16"), scale, array(0, "int32"), out_dtype="int32")
    (constant,) = values(fold(module(lambda *_: call)))
    limits = np.iinfo("int32")
    expected = np.clip(halves.astype("float64") * 2.0**24, limits.min, limits.max)
    np.testing.assert_array_equal(constant.value.numpy(), expected.astype("int32"))


def test_empty_tensors_and_scalars():
    for data in (np.zeros((0, 4)), 3.0):
        (constant,) = values(fold(module(lambda *_, data=data: quantize(data))))
        assert constant.value.numpy().tolist() == (np.asarray(data) * 2).tolist()


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


def test_types_that_say_more_than_before_are_passed_on():
    coarse = relax.TensorType(dtype="float32", ndim=1)
    a, x = relax.DataflowVar("a", relax.TensorType(dtype="int8", ndim=1)), relax.Var("x", coarse)
    b, c, d = (kind("v", coarse) for kind in (relax.DataflowVar, relax.DataflowVar, relax.Var))
    pairs = [(a, quantize(FOUR)), (b, dequantize(a)), (c, relax.op.abs(b)), (d, relax.op.add(c, x))]
    block = relax.DataflowBlock([relax.VarBinding(var, value) for var, value in pairs])
    function = relax.Function([x], relax.SeqExpr([block], d), coarse)
    mod = relax.transform.Normalize()(tvm.IRModule({"main": function}))
    result = fold(mod)
    relax.analysis.check_well_formed(result)
    assert [int(size) for size in values(result)[1].ty.shape] == [4]
    assert equal(result["main"], in_python(mod)["main"])


def test_two_quantizes_of_one_constant():
    huge = array(FOUR * 1000)

    def build(builder, x):
        made = [builder.emit(op.quantize(huge, array(s), array(0, "int32"))) for s in (1, 1, 2)]
        return relax.Tuple([x, *made])

    (result,) = values(fold(module(build)))
    one, same, other = (field.value.numpy() for field in result.fields[1:])
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(other[:4], [1, -1, 2, 0])


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


def test_every_relax_function_and_nothing_else():
    mod = module(lambda *_: quantize(FOUR))
    other = module(lambda builder, x: relax.op.add(x, builder.emit(dequantize(quantize(FOUR)))))
    a = tvm.te.placeholder((4,), name="a")
    prim = tvm.te.create_prim_func([a, tvm.te.compute((4,), lambda i: a[i] + 1)])
    mod["other"] = other["main"].with_attr("Composite", "npu.add")
    mod["prim"] = prim
    result = fold(mod)
    assert quantizes(result) == 0
    assert result["prim"].same_as(mod["prim"])
    assert result["other"].attrs["Composite"] == "npu.add"


@pytest.mark.parametrize(
    "call",
    [
        lambda x: op.quantize(x, array(0.5), array(0, "int32")),
        lambda x: relax.op.quantize(array(FOUR), array(0.5), array(0, "int8"), 0),
    ],
    ids=["a variable", "Relax's own"],
)
def test_what_it_does_not_fold_stays_the_same_object(call):
    mod = module(lambda builder, x: relax.Tuple([x, builder.emit(array(1)), call(x)]))
    assert fold(mod)["main"].same_as(mod["main"])
