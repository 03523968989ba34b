"""Random calls and modules of the operator table, for tests of the text's two ways.

Each row has well-typed calls in the cases that NumPy and PyTorch check, or among those below.
`Pool.call` starts from one of them and changes dtypes, operands and attributes: a change that the
row refuses is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from hypothesis import strategies as st
from tvm import ir, relax

import tvmlab.qnn.rows  # noqa: F401 (fills the table with the quantized operators)
from tests.ir import test_operators, test_operators_nn
from tests.ir.cases import Case, case
from tvmlab.errors import TvmlabError
from tvmlab.ir import graph, table
from tvmlab.qnn import unary

Draw = Callable[[st.SearchStrategy[Any]], Any]
FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
NAMES = ("x", "data", "p.0", "features.0.0_weight", "input/with", "_y", "x:0")
#: What Relax's operators raise, besides errors of ours, about attributes and operands.
REFUSALS = (TvmlabError, TypeError, ValueError, RuntimeError, IndexError)

IMAGE, CHANNELS = np.ones((1, 2, 4, 4), "int8"), np.ones(2, "float32")
FLAT, BATCH = np.ones((2, 3), "int8"), np.ones((2, 3, 4), "int8")
SCALE, ZERO = np.float32(0.5), np.int32(3)
SIDE = (SCALE, ZERO)
PRODUCT = (ZERO, ZERO, SCALE, SCALE)
SUM = {"out_dtype": "int32"}
NORM = (np.ones((2, 2, 3), "float32"), *[CHANNELS] * 4)
LAYERS = [
    case("nn.batch_norm", *NORM, want=None),
    case("nn.dropout", CHANNELS, want=None, rate=0.1),
    case("nn.pad", FLAT, SCALE, want=None, pad_width=[[0, 1], [2, 0]]),
    case("nn.pad", FLAT, relax.const(0.1), want=None, pad_width=[[0, 1], [2, 0]]),
    case("qnn.quantize", NORM[0], CHANNELS, CHANNELS.astype("int32"), want=None, axis=1),
    case("qnn.dequantize", IMAGE, *SIDE, want=None),
    case("qnn.requantize", IMAGE, CHANNELS, ZERO, *SIDE, want=None, axis=1, out_dtype="int8"),
    case("qnn.conv2d", IMAGE, np.ones((2, 2, 3, 3), "int8"), ZERO, ZERO, SCALE, CHANNELS,
         want=None, channels=2, kernel_size=[3, 3], padding=[1, 1], **SUM),
    case("qnn.conv2d", IMAGE, np.ones((2, 1, 3, 3), "uint8"), *PRODUCT, want=None, groups=2,
         **SUM),
    case("qnn.conv2d_transpose", IMAGE, np.ones((2, 1, 3, 3), "int8"), *PRODUCT, want=None,
         strides=[2, 2], output_padding=[1, 0], **SUM),
    case("qnn.dense", FLAT, np.ones((4, 3), "int8"), *PRODUCT, want=None, units=4, **SUM),
    case("qnn.batch_matmul", BATCH, BATCH[:1], *PRODUCT, want=None, transpose_b=True, **SUM),
    *(case(f"qnn.{name}", BATCH, BATCH[0], *SIDE * 3, want=None)
      for name in ("add", "subtract", "mul")),
    *(case(f"qnn.{name}", FLAT, *SIDE * 2, want=None)
      for name in (*unary.FUNCTIONS, "softmax", "leaky_relu")),
    case("qnn.concatenate", [FLAT, FLAT], [SCALE, SCALE], [ZERO, ZERO], *SIDE, want=None, axis=1),
    case("qnn.avg_pool2d", IMAGE, *SIDE * 2, want=None, pool_size=[2, 2], strides=[2, 2]),
]  # fmt: skip
EXAMPLES: dict[str, list[Case]] = {}
SEEN: dict[str, list[Any]] = {}  # the values that cases give to attributes of a name
for _one in (*test_operators.CASES, *test_operators_nn.CASES, *LAYERS):
    EXAMPLES.setdefault(_one.name, []).append(_one)
    for _name, _value in _one.attributes.items():
        SEEN.setdefault(_name, []).append(_value)


def is_tensor(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType)


def has_sizes(ty: ir.Type) -> bool:
    """Whether no size is negative, as Relax lets some attributes make it."""
    if isinstance(ty, relax.TupleType):
        return all(map(has_sizes, ty.fields))
    return not any(int(size) < 0 for size in ty.shape.values)


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

    def tensor(self, shape: Sequence[int], dtype: str) -> relax.Expr:
        """Find a tensor of a type, or make a parameter or a constant."""
        ty = relax.TensorType(list(shape), dtype)
        found = [value for value in self.values if value.ty == ty]
        if found and self.integer(0, 3):
            return self.one_of(*found)
        if self.draw(st.booleans()):
            numbers = np.random.default_rng(self.integer(0, 99)).normal(0, 40, shape)
            array = np.asarray(np.abs(numbers) if dtype.startswith("uint") else numbers)
            made = relax.const(array > 0 if dtype == "bool" else array.astype(dtype), dtype)
        else:
            made = relax.Var(f"{self.one_of(*NAMES)}_{len(self.params)}", ty)
            self.params.append(made)
        self.values.append(made)
        return made

    def operands(self, one: Case, dtypes: dict[str, str]) -> list[relax.Expr]:
        """Make the operands of a case, some with another dtype."""

        def operand(x: Any) -> relax.Expr:
            if isinstance(x, relax.Expr):
                return x
            if isinstance(x, list):
                return relax.Tuple([operand(field) for field in x])
            dtype = str(np.asarray(x).dtype)
            return self.tensor(np.shape(x), dtypes.get(dtype, dtype))

        return [operand(x) for x in one.operands]

    def value(self, attribute: table.Attribute) -> Any:
        """Draw a value for an attribute: a common one, or any of its kind."""
        seen = [*SEEN.get(attribute.name, ()), attribute.default]
        common = st.sampled_from([value for value in seen if value is not table.REQUIRED] or [0])
        if attribute.name.endswith("layout"):
            usual = attribute.default or "NCHW"
            return self.draw(common | st.permutations(str(usual)).map("".join))
        small = st.integers(-2, 3)
        kinds: dict[str, st.SearchStrategy[Any]] = {
            "int": small,
            "bool": st.booleans(),
            "float": st.floats(width=self.one_of(32, 64), allow_nan=False),
            "ints": st.lists(small, max_size=4),
        }
        return self.draw(common | kinds.get(attribute.kind, common))

    def call(self, name: str) -> relax.Expr:
        """Make a call of a row from one of its cases, and keep it."""
        row, one = table.find(name), self.one_of(*EXAMPLES[name])
        assert row is not None, name

        def attempt(operands: list[relax.Expr], given: dict[str, Any]) -> relax.Expr | None:
            try:
                found = graph.typed(row.to_relax(operands, table.complete_attributes(row, given)))
            except REFUSALS:
                return None
            return found if graph.has_type(found) and has_sizes(found.ty) else None

        before = len(self.params), len(self.values)
        # Relay's arange has the dtype of its bounds.
        settled = ("dtype",) if name == "arange" else ()
        change = {"float32": self.one_of(*FLOATS), "int32": self.one_of(*INTEGERS)}
        operands, given = self.operands(one, change), dict(one.attributes)
        made = attempt(operands, given)
        if made is None:
            del self.params[before[0] :], self.values[before[1] :]
            operands = self.operands(one, {})
            made = attempt(operands, given)
        assert made is not None, one
        others = [value for value in self.values if is_tensor(value)]
        if others and operands and self.draw(st.booleans()):
            place = self.integer(0, len(operands) - 1)
            other = [*operands[:place], self.one_of(*others), *operands[place + 1 :]]
            changed = attempt(other, given) if is_tensor(operands[place]) else None
            operands, made = (operands, made) if changed is None else (other, changed)
        for attribute in row.attributes:
            if attribute.name not in settled and self.integer(0, 2) == 0:
                other_given = {**given, attribute.name: self.value(attribute)}
                changed = attempt(operands, other_given)
                given, made = (given, made) if changed is None else (other_given, changed)
        self.values.append(made)
        if isinstance(made.ty, relax.TupleType):
            self.values.append(relax.TupleGetItem(made, self.integer(0, len(made.ty.fields) - 1)))
        return made


@st.composite
def calls(draw: Draw, name: str) -> relax.Expr:
    """Make a call of one row."""
    return Pool(draw).call(name)


@st.composite
def modules(draw: Draw, names: Sequence[str] | None = None, most: int = 12) -> tvm.IRModule:
    """Make a module of one function ``main``, with 1 to `most` calls of some rows, or of all."""
    pool = Pool(draw)
    count = pool.integer(1, most)
    made = [pool.call(pool.one_of(*(names or sorted(EXAMPLES)))) for _ in range(count)]
    used = {graph.key(child) for value in pool.values for child in _leaves(value)}
    ends = [value for value in pool.values if graph.key(value) not in used]
    last = made[-1] if len(ends) == 1 or pool.integer(0, 4) == 0 else relax.Tuple(ends)
    if pool.integer(0, 3) == 0:
        last = relax.Tuple([last, relax.Tuple([pool.one_of(*pool.values)]), last])
    main = graph.to_anf(pool.params, last).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": main})


def _leaves(value: relax.Expr) -> list[relax.Expr]:
    """List the operands of a call, those in tuples as well."""
    found = []
    for child in graph.children(value):
        found.extend([child, *(child.fields if isinstance(child, relax.Tuple) else ())])
    return found
