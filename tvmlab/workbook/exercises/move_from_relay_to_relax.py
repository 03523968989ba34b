"""The checks of notebook 10, Move from Relay to Relax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax, s_tir, te
from tvm.relax import dpl
from tvm_ffi import structural_equal

from ... import relay
from .judge import Wrong, call, difference, exercise, of_type

SIZE = 64  # rows and columns of the matrices
HIGH, WIDE = 16, 32  # of a block


@exercise
def check_dense_pattern(dense_pattern: Callable[[], dpl.DFPattern]) -> str:
    """Check the pattern of a dense layer with a bias, and a ReLU or none.

    Parameters
    ----------
    dense_pattern : callable
        Returns the pattern.
    """
    pattern = of_type(call(dense_pattern), dpl.DFPattern, "it", "a pattern of relax.dpl")
    a, b, c = (relay.var(name, shape=(4, 4)) for name in "abc")
    picture, filters = (relay.var(name, shape=(1, 1, 4, 4)) for name in ("picture", "filters"))
    zeros = relay.const(np.zeros((4, 4), "float32"))
    product = relax.op.matmul(a, b)
    layer = relax.op.add(product, c)
    takes = {
        "a dense layer with its bias": layer,
        "a dense layer with its bias and a ReLU": relax.op.nn.relu(layer),
    }
    leaves = {
        "a variable": a,
        "a product without a bias": product,
        "a tanh behind the layer": relax.op.tanh(layer),
        "a ReLU of anything": relax.op.nn.relu(a),
        "a sum without a product": relax.op.add(a, b),
        "a convolution with a bias": relax.op.add(relax.op.nn.conv2d(picture, filters), c),
        "a second ReLU": relax.op.nn.relu(relax.op.nn.relu(layer)),
    }
    if pattern.match(relax.op.add(relax.op.matmul(a, zeros), zeros)) and not pattern.match(layer):
        raise Wrong("it takes constants alone: weights and bias may be anything")
    if missed := [what for what, graph in takes.items() if not pattern.match(graph)]:
        raise Wrong(f"it does not take {' nor '.join(missed)}")
    if taken := [what for what, graph in leaves.items() if pattern.match(graph)]:
        raise Wrong(f"it takes too much: {', '.join(taken)}")
    return "a dense layer with its bias, and nothing else"


@exercise
def check_drop_one(simplified: Callable[[relax.Function], relax.Function]) -> str:
    """Check a rewrite that takes out multiplications by one.

    Parameters
    ----------
    simplified : callable
        Takes a function of Relax and returns the new one.
    """
    a, ones = relay.var("a", shape=(4, 4)), relay.const(1.0)
    doubled = relay.multiply(a, relay.const(2.0))
    product = relay.multiply(ones, relay.exp(relay.multiply(doubled, ones)))
    given, wanted = (
        relay.IRModule.from_expr(relay.Function([a], value))
        for value in (product, relay.exp(doubled))
    )
    found = tvm.IRModule({"main": call(simplified, given["main"])})
    # A mutator that removes a call leaves a second name for a value.
    canonical = relax.transform.CanonicalizeBindings()
    plain = [canonical(mod) for mod in (found, wanted)]
    if not structural_equal(*plain):
        products = relay.analysis.list_op_freqs(plain[0]).get("multiply", 0)
        why = "more is gone than what multiplies by one"
        if products > 1:
            why = f"{products} multiplications are left, expected the doubling alone"
        raise Wrong(f"{why}\n{difference(*(mod['main'].script() for mod in plain))}")
    return "what multiplies by one is gone, the doubling is not"


@exercise
def check_blocked(blocked: Callable[[s_tir.Schedule], object]) -> str:
    """Check a schedule that blocks and vectorizes a product of two matrices.

    Parameters
    ----------
    blocked : callable
        Changes the schedule that it is given; what it returns does not matter.
    """
    mine, other = _product(), _product()
    call(blocked, mine, returns=False)
    i, j, k = other.get_loops(other.get_sblock("C"))
    (i_outer, i_inner), (j_outer, j_inner) = (
        other.split(loop, [None, factor]) for loop, factor in ((i, HIGH), (j, WIDE))
    )
    other.reorder(i_outer, j_outer, k, i_inner, j_inner)
    other.vectorize(j_inner)
    if structural_equal(mine.mod["main"], other.mod["main"]):
        return "blocked and vectorized as the old script did"
    loops, wanted = (
        [sch.get(loop) for loop in sch.get_loops(sch.get_sblock("C"))] for sch in (mine, other)
    )
    lengths, expected = ([int(loop.extent) for loop in each] for each in (loops, wanted))
    why = "it computes in another way"
    if lengths != expected:
        why = f"the loops, from outside, have the lengths {lengths}, expected {expected}"
    elif [loop.kind for loop in loops] != [loop.kind for loop in wanted]:
        why = "the last loop, and no other, should be vectorized"
    raise Wrong(f"{why}\n{difference(*(sch.mod['main'].script() for sch in (mine, other)))}")


def _product() -> s_tir.Schedule:
    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "AB")
    k = te.reduce_axis((0, SIZE), name="k")
    c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return s_tir.Schedule(te.create_prim_func([a, b, c]))
