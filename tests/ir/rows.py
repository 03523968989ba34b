"""Random calls and modules of the operator table, for tests of the text's two ways.

Each row of the table has an example here: a function that draws operands and attributes for one
call. `example` registers one; `calls` makes calls of a single row, `modules` whole modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from hypothesis import strategies as st
from tvm import relax

from tvmlab.ir import graph, table

FLOATS = ("float32", "float64", "float16")
SIGNED = ("int32", "int64", "int8", "int16")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")
NAMES = ("x", "data", "p.0", "features.0.0_weight", "input/with", "_y", "x:0")

Draw = Callable[[st.SearchStrategy[Any]], Any]
Given = tuple[Sequence[relax.Expr], dict[str, Any]]
Example = Callable[["Pool"], Given]
EXAMPLES: dict[str, Example] = {}


def example(*names: str) -> Callable[[Example], Example]:
    """Register the function below as the example of rows."""

    def register(function: Example) -> Example:
        EXAMPLES.update(dict.fromkeys(names, function))
        return function

    return register


class Pool:
    """The expressions that a module has so far, from which calls take their operands."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.params: list[relax.Var] = []
        self.values: list[relax.Expr] = []

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def integer(self, least: int, most: int) -> int:
        return int(self.draw(st.integers(least, most)))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def sizes(self, least: int = 0, most: int = 4) -> list[int]:
        return list(self.draw(st.lists(st.integers(1, 4), min_size=least, max_size=most)))

    def tensor(
        self,
        dtypes: Sequence[str] = NUMBERS,
        shape: Sequence[int] | None = None,
        least: int = 0,
        most: int = 4,
        constant: bool = False,
    ) -> relax.Expr:
        """Find a tensor, or make a parameter or a constant.

        It has one of the dtypes, and the shape, or a number of axes between the limits.
        """

        def fits(value: relax.Expr) -> bool:
            if not isinstance(value.ty, relax.TensorType) or str(value.ty.dtype) not in dtypes:
                return False
            found = shape_of(value)
            if 0 in found:  # the shape of a scalar has no element
                return False
            return found == list(shape) if shape is not None else least <= len(found) <= most

        found = [value for value in self.values if fits(value)]
        if found and not constant and self.integer(0, 3):
            return self.one_of(*found)
        sizes = list(shape) if shape is not None else self.sizes(least, most)
        kind = self.one_of(*dtypes)
        made = self._constant(sizes, kind) if constant or self.flag() else self._param(sizes, kind)
        self.values.append(made)
        return made

    def _param(self, sizes: Sequence[int], kind: str) -> relax.Var:
        name = f"{self.one_of(*NAMES)}_{len(self.params)}"
        self.params.append(relax.Var(name, relax.TensorType(list(sizes), kind)))
        return self.params[-1]

    def _constant(self, sizes: Sequence[int], kind: str) -> relax.Expr:
        numbers = np.random.default_rng(self.integer(0, 99)).normal(0, 40, sizes)
        array = np.asarray(np.abs(numbers) if kind.startswith("uint") else numbers)
        return relax.const((array > 0) if kind == "bool" else array.astype(kind), kind)

    def broadcastable(self, shape: Sequence[int]) -> list[int]:
        """Draw a shape that broadcasts with another."""
        kept = [size if self.flag() else 1 for size in shape]
        return kept[self.integer(0, len(kept)) :]

    def axis(self, ndim: int) -> int:
        return self.integer(-ndim, ndim - 1)

    def axes(self, ndim: int) -> list[int] | None:
        """Draw axes, each once, counted from the front or the back; or none at all."""
        if ndim == 0 or self.integer(0, 3) == 0:
            return None
        chosen = self.draw(st.lists(st.integers(0, ndim - 1), min_size=1, unique=True))
        return [axis - ndim if self.flag() else axis for axis in chosen]

    def call(self, name: str) -> relax.Expr:
        """Make a call of a row, by its example, and keep it."""
        row = table.find(name)
        assert row is not None, name
        operands, given = EXAMPLES[name](self)
        made = graph.typed(row.read(operands, table.coerce(row, given)))
        self.values.append(made)
        if isinstance(made.ty, relax.TupleType):
            self.values.append(relax.TupleGetItem(made, self.integer(0, len(made.ty.fields) - 1)))
        return made


def shape_of(value: relax.Expr) -> list[int]:
    """Give the sizes of a tensor, all known."""
    return [int(size) for size in value.ty.shape.values]


@st.composite
def calls(draw: Draw, name: str) -> relax.Expr:
    """Make a call of one row."""
    return Pool(draw).call(name)


@st.composite
def modules(draw: Draw, names: Sequence[str] | None = None, most: int = 12) -> tvm.IRModule:
    """Make a module of one function ``main``, well typed.

    Parameters
    ----------
    names : sequence of str, optional
        The rows to take calls from; all that have examples unless they are given.
    most : int
        How many calls there are at most; there is one at least.
    """
    pool = Pool(draw)
    made = [pool.call(pool.one_of(*(names or sorted(EXAMPLES)))) for _ in range(draw(_calls(most)))]
    used = {graph.key(child) for value in pool.values for child in _leaves(value)}
    ends = [value for value in pool.values if graph.key(value) not in used]
    last = made[-1] if len(ends) == 1 or pool.integer(0, 4) == 0 else relax.Tuple(ends)
    if pool.integer(0, 3) == 0:
        last = relax.Tuple([last, relax.Tuple([pool.one_of(*pool.values)]), last])
    main = graph.from_graph(pool.params, last).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": main})


def _leaves(value: relax.Expr) -> list[relax.Expr]:
    """List the operands of a call, those in tuples as well."""
    found = []
    for child in graph.children(value):
        found.extend([child, *(child.fields if isinstance(child, relax.Tuple) else ())])
    return found


def _calls(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most)


def _binary(dtypes: Sequence[str]) -> Example:
    def draw(pool: Pool) -> Given:
        left = pool.tensor(dtypes)
        right = pool.tensor((str(left.ty.dtype),), pool.broadcastable(shape_of(left)))
        return ([left, right] if pool.flag() else [right, left]), {}

    return draw


def _unary(dtypes: Sequence[str]) -> Example:
    return lambda pool: ([pool.tensor(dtypes)], {})


example("add", "subtract", "multiply", "divide", "maximum", "minimum")(_binary(NUMBERS))
example("floor_divide", "mod", "floor_mod")(_binary(INTEGERS))
example("power")(_binary(FLOATS))
example("left_shift", "right_shift")(_binary(INTEGERS))
example("bitwise_and", "bitwise_or", "bitwise_xor")(_binary((*INTEGERS, "bool")))
example("logical_and", "logical_or", "logical_xor")(_binary(("bool",)))
example("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")(_binary(NUMBERS))
example("exp", "log", "log2", "log10", "sqrt", "rsqrt", "sigmoid", "erf")(_unary(FLOATS))
example("sin", "cos", "tan", "sinh", "cosh", "tanh")(_unary(FLOATS))
example("asin", "acos", "atan", "asinh", "acosh", "atanh")(_unary(FLOATS))
example("negative", "abs", "sign", "floor", "ceil", "trunc", "round")(_unary((*FLOATS, *SIGNED)))
example("isnan", "isinf", "isfinite")(_unary(FLOATS))
example("bitwise_not")(_unary((*INTEGERS, "bool")))
example("logical_not")(_unary(("bool",)))
example("copy", "zeros_like", "ones_like")(_unary(ALL))
example("all", "any")(lambda pool: _reduced(pool, pool.tensor(("bool",))))
example("sum", "mean", "max", "min", "prod")(lambda pool: _reduced(pool, pool.tensor(NUMBERS)))


def _reduced(pool: Pool, data: relax.Expr) -> Given:
    axis = pool.axes(len(shape_of(data)))
    exclude = axis is not None and pool.flag()
    return [data], {"axis": axis, "keepdims": pool.flag(), "exclude": exclude}


@example("variance")
def _variance(pool: Pool) -> Given:
    (data,), given = _reduced(pool, pool.tensor(FLOATS, least=1))
    mean = pool.tensor((str(data.ty.dtype),), [1] * len(shape_of(data)))
    return [data, mean], {**given, "unbiased": pool.flag()}


@example("argmax", "argmin")
def _place(pool: Pool) -> Given:
    (data,), given = _reduced(pool, pool.tensor(NUMBERS, least=1))
    whole = given["exclude"] and len(given["axis"]) == len(shape_of(data))
    return [data], {**given, "exclude": given["exclude"] and not whole, "select_last_index": whole}


@example("cumsum")
def _cumsum(pool: Pool) -> Given:
    data = pool.tensor(NUMBERS, least=1)
    axis = pool.one_of(None, pool.axis(len(shape_of(data))))
    return [data], {"axis": axis, "dtype": pool.one_of("", "float64"), "exclusive": pool.flag()}


@example("clip")
def _clip(pool: Pool) -> Given:
    limits = pool.one_of((0, 6), (0.0, 6.0), (-1.5, 0.1), (-3, 2.5))
    return [pool.tensor((*FLOATS, *SIGNED))], dict(zip(("a_min", "a_max"), limits, strict=True))


@example("cast")
def _cast(pool: Pool) -> Given:
    return [pool.tensor(ALL)], {"dtype": pool.one_of(*ALL)}


@example("where")
def _where(pool: Pool) -> Given:
    x = pool.tensor(ALL)
    y = pool.tensor((str(x.ty.dtype),), pool.broadcastable(shape_of(x)))
    return [pool.tensor(("bool", "int32"), pool.broadcastable(shape_of(x))), x, y], {}


@example("full_like")
def _full_like(pool: Pool) -> Given:
    data = pool.tensor(NUMBERS)
    return [data, pool.tensor((str(data.ty.dtype),), [])], {}


@example("full")
def _full(pool: Pool) -> Given:
    return [pool.tensor(NUMBERS, [])], {"shape": pool.sizes(), "dtype": pool.one_of("", "int8")}


@example("zeros", "ones")
def _zeros(pool: Pool) -> Given:
    return [], {"shape": pool.sizes(), "dtype": pool.one_of(*NUMBERS)}


@example("arange")
def _arange(pool: Pool) -> Given:
    kind = pool.one_of("int32", "int64", "float32")
    bounds = (pool.integer(-3, 0), pool.integer(1, 9), pool.integer(1, 3))
    return [relax.const(bound, kind) for bound in bounds], {"dtype": kind}


@example("one_hot")
def _one_hot(pool: Pool) -> Given:
    indices, kind = pool.tensor(("int32", "int64"), most=3), pool.one_of(*FLOATS, "int32")
    values = [pool.tensor((kind,), []) for _ in range(2)]
    axis = pool.integer(-1, len(shape_of(indices)))
    return [indices, *values], {"depth": pool.integer(1, 4), "axis": axis, "dtype": kind}


@example("shape_of")
def _shape_of(pool: Pool) -> Given:
    return [pool.tensor(ALL)], {"dtype": pool.one_of("int32", "int64", "")}


@example("broadcast_to_like", "collapse_sum_like")
def _broadcast_to_like(pool: Pool) -> Given:
    other = pool.tensor(NUMBERS)
    return [pool.tensor((str(other.ty.dtype),), shape_of(other)), other], {}


# At the end, for they register their examples here.
import tests.ir.rows_nn  # noqa: E402
import tests.ir.rows_qnn  # noqa: E402
import tests.ir.rows_shape  # noqa: E402, F401
