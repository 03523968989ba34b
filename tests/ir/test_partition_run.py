"""Partitioned modules run: through a code generator, and without one."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx

from tests.ir.partitions import called, composite, module, names, op, run, same, supports, variables
from tvmlab.ir.partition import (
    AnnotateTarget,
    InlineRegions,
    LowerRegions,
    MergeCompilerRegions,
    PartitionGraph,
)


def data(count: int = 2) -> list[np.ndarray]:
    generator = np.random.default_rng(4)
    return [generator.standard_normal((10, 10)).astype("float32") for _ in range(count)]


@pytest.fixture
def generator():
    """A code generator for functions of one call of `abs`, which remembers what it got."""
    seen = []

    def generate(functions, options, constants):
        made = []
        for function in functions:
            symbol = str(function.attrs["global_symbol"])
            seen.append(symbol)
            a = te.placeholder((10, 10), name="a")
            # One more than the absolute value, so that the numbers tell who computed them.
            b = te.compute((10, 10), lambda i, j: tirx.abs(a[i, j]) + 1.0)  # noqa: B023
            prim = te.create_prim_func([a, b]).with_attr("global_symbol", symbol)
            made.append(tvm.compile(ir.IRModule({symbol: prim}), "llvm").mod)
        return made

    tvm_ffi.register_global_func("relax.ext.abs_plus_one", generate, override=True)
    yield seen
    tvm_ffi.remove_global_func("relax.ext.abs_plus_one")


def partitioned(compiler: str, body, params) -> ir.IRModule:
    passes = [AnnotateTarget(compiler), MergeCompilerRegions(), PartitionGraph()]
    return tvm.transform.Sequential(passes)(module(params, body))


def test_a_code_generator_takes_its_regions(generator, tmp_path):
    supports("abs_plus_one", "abs")
    x, y = variables("x y")
    done = partitioned("abs_plus_one", op("add", op("tanh", op("abs", x)), op("abs", y)), [x, y])
    given = data()
    wanted = np.tanh(np.abs(given[0]) + 1) + np.abs(given[1]) + 1
    lowered = relax.transform.RunCodegen()(done)
    assert generator == ["tvmgen_default_abs_plus_one_main_0", "tvmgen_default_abs_plus_one_main_1"]
    assert names(lowered) == set()
    np.testing.assert_allclose(run(lowered, *given)[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(run(LowerRegions()(done), *given)[0], wanted, rtol=1e-6)


def test_without_a_code_generator_the_numbers_are_the_same():
    supports("absent", "abs", "add", "nn.relu")
    x, y, p, q = variables("x y p q")
    function = composite("absent.mul_relu", [p, q], op("nn.relu", op("multiply", p, q)))
    total = op("add", op("abs", x), y)
    body = relax.Tuple([op("tanh", total), op("add", called(function, total, y), op("exp", total))])
    done = partitioned("absent", body, [x, y])
    assert names(done) == {"absent_main_0", "absent_main_3"}
    lowered = LowerRegions()(done)
    total = op("add", op("abs", x), y)
    last = op("add", op("nn.relu", op("multiply", total, y)), op("exp", total))
    same(lowered, module([x, y], relax.Tuple([op("tanh", total), last])))
    given = data()
    plus = np.abs(given[0]) + given[1]
    wanted = [np.tanh(plus), np.maximum(plus * given[1], 0) + np.exp(plus)]
    for found, one in zip(run(lowered, *given), wanted, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5)


def test_only_regions_without_a_code_generator_go(generator):
    supports("abs_plus_one", "abs")
    supports("nobody", "tanh")
    (x,) = variables("x")
    passes = [AnnotateTarget(["abs_plus_one", "nobody"]), MergeCompilerRegions(), PartitionGraph()]
    done = tvm.transform.Sequential(passes)(module([x], op("tanh", op("abs", x))))
    assert names(done) == {"abs_plus_one_main_0", "nobody_main_1"}
    inlined = InlineRegions()(done)
    assert names(inlined) == {"abs_plus_one_main_0"}
    (given,) = data(1)
    np.testing.assert_allclose(
        run(LowerRegions()(done), given)[0], np.tanh(np.abs(given) + 1), rtol=1e-6
    )


def test_composite_functions_that_nobody_annotated():
    x, y, p, q = variables("x y p q")
    function = composite("lone.add", [p, q], op("add", p, q))
    mod = module([x, y], op("tanh", called(function, called(function, x, y), y)))
    same(InlineRegions()(mod), module([x, y], op("tanh", op("add", op("add", x, y), y))))


def test_other_modules_stay():
    (x,) = variables("x")
    mod = module([x], op("abs", x))
    assert InlineRegions()(mod)["main"].same_as(mod["main"])


def test_a_main_without_a_global_symbol_stays_too():
    (x,) = variables("x")
    mod = module([x], op("abs", x))
    mod["main"] = mod["main"].without_attr("global_symbol")
    assert "main" in LowerRegions()(mod)
