from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvmlab
from tests.oracles.models import array, convolutional, dense, plainly, said
from tvmlab.compiler import simplify
from tvmlab.errors import CompileError


@I.ir_module
class Wasteful:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            same = x
            two = R.add(R.const(1.0, "float32"), R.const(1.0, "float32"))
            unused = R.nn.relu(same)  # noqa: F841
            out = R.multiply(same, two)
            R.output(out)
        return out


@I.ir_module
class Simple:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            out = R.multiply(x, R.const(2.0, "float32"))
            R.output(out)
        return out


def test_simplify_folds_constants_and_drops_what_is_unused() -> None:
    tvm.ir.assert_structural_equal(simplify(Wasteful), Simple)
    tvm.ir.assert_structural_equal(simplify(Simple), Simple)


def test_compile_gives_upstreams_numbers_and_leaves_the_module_alone() -> None:
    mod = tvmlab.load(convolutional())
    before = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    x = array(1, 3, 8, 8)
    result = tvmlab.compile(mod)(x)
    tvm.ir.assert_structural_equal(mod, before)
    np.testing.assert_allclose(result, plainly(mod, x), rtol=1e-4, atol=1e-5)


def test_a_function_without_dataflow_blocks_is_optimized_alike() -> None:
    mod, x, kernels = tvmlab.load(convolutional()), array(1, 3, 8, 8), []
    for one in (mod, relax.transform.ToNonDataflow()(mod)):
        run = tvmlab.compile(one)
        kernels.append([(kernel.name, kernel.rule) for kernel in run.summary().kernels])
        np.testing.assert_allclose(run(x), plainly(one, x), rtol=1e-4, atol=1e-5)
    assert kernels[0] == kernels[1]


def test_compile_is_for_the_host_unless_told() -> None:
    mod = tvmlab.load(dense())
    assert str(tvmlab.compile(mod).target) == str(tvmlab.host_target())
    spec = {"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-unknown-linux-gnu"}
    assert tvmlab.compile(mod, spec).target.attrs["mcpu"] == "x86-64-v3"


@I.ir_module
class WithPrimFunc:
    @T.prim_func
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = WithPrimFunc
        with R.dataflow():
            out = R.call_tir(cls.double, (x,), out_ty=R.Tensor((4,), "float32"))
            R.output(out)
        return out


def test_tir_functions_may_be_in_the_module() -> None:
    x = array(4)
    np.testing.assert_allclose(tvmlab.compile(WithPrimFunc)(x), 2 * x)


@pytest.mark.parametrize("given", [None, "model.onnx", b"", dense(), Simple["main"]], ids=type)
def test_what_is_no_module(given: Any) -> None:
    with pytest.raises(CompileError, match=r"a tvm\.ir\.IRModule is needed") as caught:
        tvmlab.compile(given)
    assert "tvmlab.load" in str(caught.value)


def test_a_module_without_main() -> None:
    renamed = tvm.IRModule({"other": Simple["main"].with_attr("global_symbol", "other")})
    for mod, where in ((renamed, "other"), (tvm.IRModule(), "an empty module")):
        with pytest.raises(CompileError, match="no Relax function named main") as caught:
            tvmlab.compile(mod)
        assert caught.value.where == where
        said(caught.value)


def test_what_tvm_cannot_compile_is_a_compile_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("a pass")

    monkeypatch.setattr(relax, "build", fails)
    with pytest.raises(CompileError, match="could not compile the module: a pass") as caught:
        tvmlab.compile(tvmlab.load(dense()), "llvm")
    assert caught.value.__cause__ is not None
    assert "target" in said(caught.value)


@pytest.mark.parametrize("kind", ["c", "hexagon", "vulkan"])
def test_a_kind_that_this_tvm_makes_no_code_for(kind: str) -> None:
    with pytest.raises(CompileError, match="could not compile the module") as caught:
        tvmlab.compile(tvmlab.load(dense()), kind)
    assert f'"kind":"{kind}"' in said(caught.value)
