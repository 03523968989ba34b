"""Quantized operators as calls and in the reference, with operands drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import tvm
from tvm import relax

import tvmlab
from tvmlab.qnn import arithmetic, op
from tvmlab.qnn.operator import OPERATORS
from tvmlab.qnn.unary import FUNCTIONS

Array = np.ndarray
BINARY, UNARY = ("add", "subtract", "mul"), tuple(FUNCTIONS)
NARROW = ("int8", "uint8", "int16")
QUANTIZED = (*NARROW, "int32")
#: Every rounding with each dtype that it computes in.
WAYS = (
    *product(("UPWARD", "TONEAREST"), ("int64", "float32", "float64")),
    *(("TFLITE", "int64"), ("TFLITE", "float64"), ("ONNX", "float32")),
)
IMAGES, WEIGHTS = ("NCHW", "NHWC", "HWCN"), ("OIHW", "OHWI", "HWIO", "IOHW")


@dataclass
class Case:
    """An operator of `tvmlab.qnn.op` with its operands: arrays, or lists of arrays.

    The operands `given` are parameters of the function, the others constants.
    """

    name: str
    operands: list[Any]
    given: tuple[int, ...] = (0,)
    attributes: dict[str, Any] = field(default_factory=dict)

    def parameters(self) -> list[Array]:
        """List the arrays that are given at run time."""
        return [x for i in self.given for x in _listed(self.operands[i])]

    def relax(self, variables: Sequence[relax.Var]) -> relax.Call:
        """Make the call."""
        left, made = list(variables), []
        for i, operand in enumerate(self.operands):
            whole = isinstance(operand, list)
            exprs = [
                left.pop(0) if i in self.given else relax.const(x, str(x.dtype))
                for x in _listed(operand)
            ]
            made.append(exprs if whole else exprs[0])
        return self._called(op, made)

    def expected(self) -> Array:
        """Compute it by the reference."""
        return self._called(arithmetic, self.operands)

    def _called(self, functions: Any, operands: list[Any]) -> Any:
        named = zip(OPERATORS[self.name].operands, operands, strict=True)
        return getattr(functions, self.name)(**dict(named), **self.attributes)

    def __str__(self) -> str:
        """Say what is needed to find a difference."""
        parts = [
            f"{x.dtype}{list(x.shape)}" + (f"={x.tolist()}" if x.size < 4 else "")
            for operand in self.operands
            for x in _listed(operand)
        ]
        return f"{self.name}({', '.join(parts)}, {self.attributes}), given {self.given}"


def _listed(operand: Any) -> list[Array]:
    return operand if isinstance(operand, list) else [operand]


def module(cases: Sequence[Case]) -> tuple[tvm.IRModule, list[Array]]:
    """Put operators side by side in one function; give its inputs as well."""
    builder, variables, arrays = relax.BlockBuilder(), [], []
    for i, case in enumerate(cases):
        own = case.parameters()
        arrays += own
        types = [relax.TensorType(x.shape, str(x.dtype)) for x in own]
        variables.append([relax.Var(f"x{i}_{j}", ty) for j, ty in enumerate(types)])
    with builder.function("main", [var for each in variables for var in each]):
        with builder.dataflow():
            results = [
                builder.emit_output(case.relax(own))
                for case, own in zip(cases, variables, strict=True)
            ]
        builder.emit_func_output(relax.Tuple(results))
    return builder.get(), arrays


def differences(cases: Sequence[Case], **options: Any) -> list[str]:
    """Compile operators and say which give other bits than the reference."""
    mod, arrays = module(cases)
    found = tvmlab.compile(mod, **options)(*arrays)
    troubles = []
    for case, result in zip(cases, found, strict=True):
        want = case.expected()
        if (result.dtype, result.shape) != (want.dtype, want.shape):
            troubles.append(f"{result.dtype}{result.shape}, not {want.dtype}{want.shape}: {case}")
        elif (wrong := result != want).any():
            some = f"{result[wrong][:3]}, not {want[wrong][:3]}"
            troubles.append(f"{wrong.sum()} of {wrong.size}: {some}: {case}")
    return troubles


class Draw:
    """What a seed chooses."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def of(self, *choices: Any) -> Any:
        """Choose one value."""
        return choices[int(self.rng.integers(len(choices)))]

    def whole(self, low: int, high: int) -> int:
        """Choose an integer, `high` included."""
        return int(self.rng.integers(low, high, endpoint=True))

    def zero(self, dtype: str) -> Array:
        """Choose a zero point: often an end of the dtype, or 0."""
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        near = self.whole(max(low, -1000), min(high, 1000))
        return np.asarray(self.of(0, low, high, near, near, near), np.int32)

    def scale(self) -> Array:
        """Choose a scale; half of them are powers of two, which make half-way cases."""
        exact, other = 2.0 ** self.whole(-3, 1), np.exp(self.rng.uniform(-9, 0.7))
        return np.asarray(self.of(exact, other), np.float32)

    def each(self, count: int, make: Any) -> Array:
        """Choose one value, or one for each channel."""
        return make() if self.of(True, False) else np.stack([make() for _ in range(count)])

    def values(self, shape: Sequence[int], dtype: str, zero: int = 0) -> Array:
        """Fill an array: the whole range, the ends, and what lies next to the zero point."""
        info = np.iinfo(dtype)
        made = self.rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        if dtype == "int32":  # sums are small more often than not
            made = made >> self.rng.integers(0, 31, shape, dtype)
        near = np.clip(zero + self.rng.integers(-9, 10, shape), info.min, info.max)
        kind = self.rng.integers(0, 16, shape)
        ends = np.where(kind == 0, info.min, np.where(kind == 1, info.max, made))
        return np.where((kind > 1) & (kind < 6), near, ends).astype(dtype)

    def shape(self, least: int = 0) -> list[int]:
        """Choose a shape of up to four axes; one in twenty is empty."""
        sizes = [self.of(1, 2, 5), self.of(1, 3, 8), self.of(3, 8, 17), self.of(16, 17, 64)]
        shape = sizes[self.whole(0, 3) :] if least or self.whole(0, 19) else []
        if shape and not self.whole(0, 19):
            shape[self.whole(0, len(shape) - 1)] = 0
        return shape

    def scaled(self, shape: Sequence[int], dtype: str) -> tuple[int, Array, Array]:
        """Choose an axis, and scales and zero points along it."""
        axis = self.whole(-max(len(shape), 1), max(len(shape), 1) - 1)
        count = (shape[axis] if shape else 1) or 1  # of an empty tensor: one for all
        return axis, self.each(count, self.scale), self.each(count, lambda: self.zero(dtype))


def configured(draw: Draw, way: tuple[str, str]) -> Iterator[Case]:
    """Make each operator that changes scales, in each dtype; half of them leave the way open."""
    constness = draw.whole(0, 3)
    for i, (dtype, out) in enumerate((*product(QUANTIZED, QUANTIZED), ("int64", "int8"))):
        yield requantize(draw, way, dtype, out, ((), (2,), (4,), (2, 4))[(i + constness) % 4])
    for name, dtype in product(BINARY, QUANTIZED):
        if name == "mul" or dtype != "int32" or way[0] != "TFLITE":
            yield binary(draw, way, name, dtype)
    for dtype in QUANTIZED:
        yield concatenate(draw, dtype)
        yield avg_pool2d(draw, way, dtype)
    for dtype in NARROW:
        yield unary(draw, "leaky_relu", dtype)
    yield unary(draw, "softmax", "int8")


def others(draw: Draw) -> Iterator[Case]:
    """Make each operator in whose arithmetic no rounding is chosen, in each dtype."""
    for out, given in product(QUANTIZED, ((0,), (0, 1), (0, 2), (0, 1, 2))):
        yield quantize(draw, out, given)
        yield dequantize(draw, out, given)
    for name, dtype in product(UNARY, NARROW):
        yield unary(draw, name, dtype)
    makers = (convolution, transposed, dense, batch_matmul)
    for i, dtypes in enumerate(product(NARROW, NARROW)):
        for make in makers:
            out = ("int32", "int64", "int16")[(i + i // 3) % 3]
            yield make(draw, dtypes, out if make is not batch_matmul else "int32")


def requantize(
    draw: Draw, way: tuple[str, str], dtype: str, out: str, open_: tuple[int, ...]
) -> Case:
    shape, kind = draw.shape(), "int32" if dtype == "int64" else dtype
    axis, scales, zeros = draw.scaled(shape, kind)
    if draw.of(True, False):
        scales = scales.astype(np.float64) * draw.rng.uniform(0.5, 2.0)
    out_scale = scales if scales.shape == () and not draw.whole(0, 5) else draw.scale()
    data = draw.values(shape, kind, int(zeros.ravel()[0])).astype(dtype)
    rounding, compute_dtype = draw.of(way, ("None", "None"))
    attributes = {"axis": axis, "rounding": rounding, "compute_dtype": compute_dtype}
    operands = [data, scales, zeros, np.asarray(out_scale, np.float32), draw.zero(out)]
    return Case("requantize", operands, (0, *open_), {**attributes, "out_dtype": out})


def quantize(draw: Draw, out: str, given: tuple[int, ...]) -> Case:
    shape = draw.shape()
    axis, scales, zeros = draw.scaled(shape, out)
    steps = draw.rng.normal(0, 10 ** draw.rng.uniform(0, 4, shape), shape)
    halves = np.floor(steps) + 0.5
    whole = np.where(draw.rng.random(shape) < 0.5, steps, halves)
    data = np.asarray(whole * scales.ravel()[0], np.float32)
    for value in (np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31):
        data[draw.rng.random(shape) < 0.03] = value
    with np.errstate(over="ignore"):
        data = data.astype(draw.of("float32", "float32", "float16"))
    attributes = {"axis": axis, "out_dtype": out, "rounding": draw.of("None", "ONNX")}
    return Case("quantize", [data, scales, zeros], given, attributes)


def dequantize(draw: Draw, dtype: str, given: tuple[int, ...]) -> Case:
    shape = draw.shape()
    axis, scales, zeros = draw.scaled(shape, dtype)
    data = draw.values(shape, dtype, int(zeros.ravel()[0]))
    attributes = {"axis": axis, "out_dtype": draw.of("float32", "float16")}
    return Case("dequantize", [data, scales, zeros], given, attributes)


def binary(draw: Draw, way: tuple[str, str], name: str, dtype: str) -> Case:
    shape = draw.shape()
    shapes = [list(shape), list(shape)]
    for i, size in enumerate(shape):
        which = draw.whole(0, 5)
        if which < 2 and size:
            shapes[which][i] = 1
    side = draw.whole(0, 1)
    shapes[side] = shapes[side][draw.of(0, draw.whole(0, len(shape))) :]
    tensors: list[Array] = []
    points: list[Array] = []
    attributes: dict[str, Any] = {"rounding": draw.of(way[0], "None")}
    for word, own in zip(("lhs", "rhs"), shapes, strict=True):
        axis, scales, zeros = draw.scaled(own, dtype)
        attributes[f"{word}_axis"] = axis
        # The frameworks' kernels take one scale a tensor, and ONNX Runtime's one zero point; scales
        # by channel of both sides of a product need the same axis.
        if way[0] in ("TFLITE", "ONNX") or (name, word) == ("mul", "rhs"):
            scales = scales.ravel()[0]
        if way[0] == "ONNX" and name != "mul":
            zeros = zeros.ravel()[0]
        tensors.append(draw.values(own, dtype, int(zeros.ravel()[0])))
        points += [np.asarray(scales, np.float32), np.asarray(zeros, np.int32)]
    same = [points[0].ravel()[0], points[1].ravel()[0]]
    out = draw.of(same, [draw.scale(), draw.zero(dtype)], [draw.scale(), draw.zero(dtype)])
    points += [np.asarray(out[0], np.float32), np.asarray(out[1], np.int32)]
    return Case(name, [*tensors, *points], draw.of((0, 1), (0,), (1,)), attributes)


def concatenate(draw: Draw, dtype: str) -> Case:
    shape = draw.shape(least=1)
    axis = draw.whole(-len(shape), len(shape) - 1)
    tensors, scales, zeros = [], [], []
    out_scale, out_zero = draw.scale(), draw.zero(dtype)
    for _ in range(draw.whole(1, 3)):
        shape[axis] = draw.whole(1, 9)
        same = draw.of(True, False)
        scales.append(out_scale if same else draw.scale())
        zeros.append(out_zero if same else draw.zero(dtype))
        tensors.append(draw.values(shape, dtype, int(zeros[-1])))
    operands = [tensors, scales, zeros, out_scale, out_zero]
    return Case("concatenate", operands, (0,), {"axis": axis})


def unary(draw: Draw, name: str, dtype: str) -> Case:
    zero, shape, attributes = draw.zero(dtype), draw.shape(least=name == "softmax"), {}
    operands = [draw.scale(), zero, draw.scale(), draw.zero(dtype)]
    if name == "leaky_relu":
        attributes["alpha"] = draw.of(0.25, 0.1, 0.0, -1.5)
    if name == "softmax":
        shape, operands[0] = [size or 1 for size in shape], operands[0].clip(0, 1)
        attributes["axis"] = draw.whole(-len(shape), len(shape) - 1)
    return Case(name, [draw.values(shape, dtype, int(zero)), *operands], (0,), attributes)


def _sized(sizes: dict[str, int], layout: str) -> list[int]:
    return [sizes[letter] for letter in layout]


def _window(
    draw: Draw, sizes: dict[str, int], taps: dict[str, int], dilations: tuple[int, ...]
) -> dict[str, Any]:
    """Choose strides, padding and dilation, and sizes that the window fits into."""
    dilation = [draw.of(*dilations) for _ in "HW"]
    for letter, step in zip("HW", dilation, strict=True):
        taps[letter] = draw.whole(1, 3)
        sizes[letter] = (taps[letter] - 1) * step + draw.whole(1, 6)
    return {
        "strides": [draw.whole(1, 3) for _ in "HW"],
        "padding": [draw.whole(0, 2) for _ in range(draw.of(1, 2, 4))],
        "dilation": dilation,
    }


def convolution(draw: Draw, dtypes: Sequence[str], out: str) -> Case:
    groups, inner = draw.of((1, 3), (1, 16), (1, 16), (1, 1), (2, 4), (3, 2), (8, 1), (16, 1))
    sizes = {"N": draw.whole(1, 2), "C": groups * inner}
    made = outer = groups * draw.of(1, 2, 3, 16)
    if inner == 1 and groups > 1 and draw.of(True, False):  # depthwise: (channels, multiplier)
        outer, inner = groups, draw.whole(1, 3)
        made = outer * inner
    taps = {"O": outer, "I": inner}
    attributes = _window(draw, sizes, taps, (1, 1, 2))
    attributes |= {
        "groups": groups,
        "data_layout": draw.of("NHWC", *IMAGES),
        "kernel_layout": draw.of(*WEIGHTS),
        "out_layout": draw.of("", "", "NCHW", "NHWC"),
        "out_dtype": out,
        "kernel_size": None,
        "channels": None,
    }
    shapes = _sized(sizes, attributes["data_layout"]), _sized(taps, attributes["kernel_layout"])
    return Case("conv2d", *_product(draw, shapes, dtypes, made), attributes)


def _product(
    draw: Draw, shapes: tuple[list[int], list[int]], dtypes: Sequence[str], made: int
) -> tuple[list[Array], tuple[int, ...]]:
    """Choose data and weights, their zero points and scales, and what is known at run time only."""
    zeros = [draw.zero(dtypes[0]), draw.each(made, lambda: draw.zero(dtypes[1]))]
    data, weight = (
        draw.values(s, d, int(z.ravel()[0])) for s, d, z in zip(shapes, dtypes, zeros, strict=True)
    )
    given = draw.of((0,), (0,), (0, 1), (0, 2), (0, 3), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5))
    return [data, weight, *zeros, draw.scale(), draw.each(made, draw.scale)], given


def transposed(draw: Draw, dtypes: Sequence[str], out: str) -> Case:
    groups, inner, outer = draw.of(1, 1, 2), draw.whole(1, 4), draw.whole(1, 4)
    sizes = {"N": draw.whole(1, 2), "C": groups * inner}
    taps = {"I": groups * inner, "O": outer}
    attributes = _window(draw, sizes, taps, (1, 2))
    attributes["padding"] = [0] if min(taps["H"], taps["W"]) == 1 else [draw.whole(0, 1)]
    for letter in "HW":
        sizes[letter] = draw.whole(2, 5)
    attributes |= {
        "groups": groups,
        "output_padding": [draw.whole(0, s - 1) for s in attributes["strides"]],
        "data_layout": draw.of("NCHW", "NHWC"),
        "kernel_layout": draw.of(*WEIGHTS),
        "out_dtype": out,
    }
    shapes = _sized(sizes, attributes["data_layout"]), _sized(taps, attributes["kernel_layout"])
    return Case("conv2d_transpose", *_product(draw, shapes, dtypes, groups * outer), attributes)


def dense(draw: Draw, dtypes: Sequence[str], out: str) -> Case:
    shape, units = draw.shape(least=1)[-2:], draw.of(1, 3, 16, 17)
    shape[-1] = shape[-1] or 1
    operands, given = _product(draw, (shape, [units, shape[-1]]), dtypes, units)
    return Case("dense", operands, given, {"units": None, "out_dtype": out})


def batch_matmul(draw: Draw, dtypes: Sequence[str], out: str) -> Case:
    b, m, n, k = (draw.of(1, 2, 5, 16) for _ in range(4))
    first, second = draw.of((b, b), (1, b), (b, 1))
    operands, given = _product(draw, ([first, m, k], [second, n, k]), dtypes, 1)
    operands[3:6:2] = [part.reshape(-1)[0].reshape(()) for part in operands[3:6:2]]
    return Case("batch_matmul", operands, given, {"out_dtype": out})


def avg_pool2d(draw: Draw, way: tuple[str, str], dtype: str) -> Case:
    sizes, taps = {"N": draw.whole(1, 2), "C": draw.of(1, 3, 16)}, {"H": 1, "W": 1}
    attributes = _window(draw, sizes, taps, (1, 1, 2))
    attributes |= {
        "pool_size": draw.of([taps["H"], taps["W"]], [taps["H"], taps["W"]], [1, 1]),
        "ceil_mode": draw.of(True, False),
        "count_include_pad": draw.of(True, False),
        "layout": draw.of("NHWC", "NCHW"),
        "out_layout": draw.of("", "NHWC", "NCHW"),
        "rounding": draw.of(way[0], "None"),
    }
    points = [draw.scale(), draw.zero(dtype)] * 2
    if draw.of(True, True, False):
        points[2:] = [draw.scale(), draw.zero(dtype)]
    data = draw.values(_sized(sizes, attributes["layout"]), dtype, int(points[1]))
    return Case("avg_pool2d", [data, *points], (0,), attributes)
