"""`QnnQuantizeConstFold` in C++ as a pass among passes, what it refuses, and how it is built."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.native.const_fold import (
    FOUR,
    array,
    dequantize,
    fold,
    in_python,
    module,
    quantize,
    quantizes,
)
from tests.short import long
from tvmlab import native
from tvmlab.errors import InputError
from tvmlab.ir import dialect
from tvmlab.qnn import op
from tvmlab.support import toolchain

# ---- a pass among passes ----


def test_composes():
    mod = module(lambda builder, x: relax.op.add(x, builder.emit(dequantize(quantize(FOUR)))))
    fold_pass = native.qnn_quantize_const_fold()
    assert isinstance(fold_pass, tvm.transform.Pass)
    assert (fold_pass.info.name, fold_pass.info.opt_level) == ("QnnQuantizeConstFold", 0)
    seen = []

    @tvm.instrument.pass_instrument
    class Names:
        def run_before_pass(self, _, info):
            seen.append(info.name)

    passes = [
        relax.transform.CanonicalizeBindings(),
        fold_pass,
        relax.transform.DeadCodeElimination(),
    ]
    with tvm.transform.PassContext(instruments=[Names()]):
        result = tvm.transform.Sequential(passes)(mod)
    assert quantizes(result) == 0
    assert "QnnQuantizeConstFold" in seen
    with tvm.transform.PassContext(disabled_pass=["QnnQuantizeConstFold"]):
        assert quantizes(tvm.transform.Sequential(passes)(mod)) == 1


# ---- what means nothing is refused ----

BAD = {
    "NaN": ([1, np.nan, 3, 4], 0.5, 0, "data", "element 1 of data is NaN"),
    "scale 0": (FOUR, 0, 0, "output_scale", "output_scale is 0 at channel 0; a scale is"),
    "scale NaN": (FOUR, [1, 1, np.nan, 1], 0, "output_scale", "is nan at channel 2"),
    "scale below 0": (FOUR, -1e-30, 0, "output_scale", "output_scale is -1e-30"),
    "scale infinite": (FOUR, np.inf, 0, "output_scale", "output_scale is inf"),
    "zero point": (
        FOUR,
        1,
        [0, 0, 0, 128],
        "output_zero_point",
        "is 128 at channel 3; values",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_constants(name):
    data, scale, zero, operand, words = BAD[name]
    # As a module from a file comes: the operator's builder refuses it at once.
    operands = [array(data), array(scale), array(zero, "int32")]
    attributes = {"axis": 0, "out_dtype": "int8", "rounding": "None"}
    mod = module(lambda *_: dialect.typed_call("relax.qnn.quantize", operands, attributes))
    with pytest.raises(InputError, match=words) as caught:
        tvm.transform.Sequential([native.qnn_quantize_const_fold()])(mod)
    assert caught.value.where == f"qnn.quantize, operand {operand}"
    with pytest.raises(InputError) as other:
        in_python(mod)
    assert other.value.where == caught.value.where
    if name == "NaN":
        assert str(other.value) == str(caught.value)


MALFORMED = {
    "axis": (
        [FOUR, 1, 0],
        {"axis": 1, "out_dtype": "int8"},
        "axis is 1; the data has 1",
    ),
    "axis below": ([FOUR, 1, 0], {"axis": -2, "out_dtype": "int8"}, "axis is -2"),
    "scalar": ([3.0, 1, 0], {"axis": 1, "out_dtype": "int8"}, "the data has 0 dimensions"),
    "scales": ([FOUR, [1, 1], 0], {"axis": 0, "out_dtype": "int8"}, "output_scale has 2 values in"),
    "rank": ([FOUR, 1, [[0]]], {"axis": 0, "out_dtype": "int8"}, "1 values in 2 dimensions"),
    "no axis": ([FOUR, 1, 0], {"out_dtype": "int8"}, "attribute axis"),
    "text": ([FOUR, 1, 0], {"axis": "a", "out_dtype": "int8"}, "attribute axis"),
    "no dtype": ([FOUR, 1, 0], {"axis": 0}, "attribute out_dtype"),
    "no attributes": ([FOUR, 1, 0], None, "attribute axis"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_calls_that_the_operator_would_not_have_let_through(name):
    (data, scale, zero), attributes, words = MALFORMED[name]
    operands = [array(data), array(scale), array(zero, "int32")]
    call = dialect.call("relax.qnn.quantize", operands, attributes or {})
    if attributes is None:
        call = relax.Call(call.op, operands)
    kind = relax.TensorType(np.shape(data), "int8")
    relax.expr._update_type(call, kind)
    var = relax.Var("v", kind)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, call)])], var)
    with pytest.raises(InputError, match=words):
        fold(tvm.IRModule({"main": relax.Function([], body, kind)}))


def test_nothing_is_kept():
    weights = array(np.ones((4, 1 << 20)))
    hole = array(np.append(np.ones(1 << 22, "float32"), np.float32(np.nan)))
    large = module(lambda *_: op.quantize(weights, array(1), array(0, "int32")))
    broken = module(lambda *_: op.quantize(hole, array(1), array(0, "int32")))

    def resident():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    for _ in range(2):
        before = resident()
        for _ in range(20):
            fold(large)
            with pytest.raises(InputError):
                fold(broken)
    assert resident() - before < 20 * weights.value.numpy().size


# ---- the sources ----


@pytest.mark.parametrize("source", ["pass.cc", "fold.cc"])
def test_compiles_without_a_warning(source):
    # tvm-ffi's headers have warnings of their own: they count as the system's.
    headers = [flag.replace("-I", "-isystem", 1) for flag in toolchain.ffi_flags()[0]]
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    command = [toolchain.compiler().path, *flags, *headers, "-fsyntax-only"]
    assert toolchain.run([*command, native.CONST_FOLD / source]).output == ""


def test_needs_no_header_of_tvm():
    for source in native.CONST_FOLD.glob("*.[ch]*"):
        included = re.findall(r"#include <(tvm/[^>]*)>", source.read_text())
        assert all(name.startswith("tvm/ffi/") for name in included)


@pytest.mark.parametrize("way", ["cmake", pytest.param("make", marks=long)])
def test_other_ways_to_build(way, tmp_path):
    if way == "make":
        # Optimized, it compiles twice as long: `build_extension` does so, for all other tests.
        options = [f"BUILD={tmp_path}", "CXXFLAGS=-O0"]
        toolchain.run(["make", *options, "-f", native.CONST_FOLD / "Makefile"])
    else:
        toolchain.run(["cmake", "-S", native.CONST_FOLD, "-B", tmp_path, "-G", "Ninja"])
        toolchain.run(["cmake", "--build", tmp_path])
    library = toolchain.load_extension(tmp_path / "const_fold.so")
    result = library.qnn_quantize_const_fold()(module(lambda *_: quantize(FOUR)))
    assert quantizes(result) == 0
