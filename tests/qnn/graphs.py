"""Quantized networks as frontends import them, small: built by hand, and drawn at random."""

from __future__ import annotations

import random

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

from tvmlab import qnn

LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}


def scale(value):
    return relax.const(np.asarray(value, "float32"))


def zero(value, dtype="int32"):
    return relax.const(np.asarray(value, dtype))


def integers(shape, dtype="int8", seed=0):
    """Draw integers of the whole range of a dtype."""
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


class Network:
    """Builds a module of one function ``main`` of one dataflow block.

    Values are variables. `quantized` gives a float value's integers, `real` the float values of
    integers; `fake` does both, as a frontend writes a quantized value that float operators read.
    """

    def __init__(self, *inputs, name="main"):
        self.builder = relax.BlockBuilder()
        self.inputs = [
            relax.Var(f"x{i}", relax.TensorType(shape, dtype))
            for i, (shape, dtype) in enumerate(inputs)
        ]
        self._scopes = [self.builder.function(name, self.inputs), self.builder.dataflow()]
        for scope in self._scopes:
            scope.__enter__()

    def emit(self, expr):
        return self.builder.emit(expr)

    def quantized(self, x, s, z, dtype="int8", axis=-1):
        if dtype == "int32":  # which R.quantize refuses
            return self.emit(qnn.op.quantize(x, scale(s), zero(z), axis, dtype))
        return self.emit(op.quantize(x, scale(s), zero(z, dtype), axis=axis, out_dtype=dtype))

    def real(self, x, s, z, axis=-1):
        return self.emit(op.dequantize(x, scale(s), zero(z, str(x.ty.dtype)), axis=axis))

    def fake(self, x, s, z, dtype="int8"):
        return self.real(self.quantized(x, s, z, dtype), s, z)

    def weight(self, values, s, z=0, axis=0):
        return self.real(relax.const(np.asarray(values)), s, z, axis)

    def module(self, *results):
        """End the function; results can be integers or floats."""
        out = [self.builder.emit_output(result) for result in results]
        self._scopes[1].__exit__(None, None, None)
        self.builder.emit_func_output(out[0] if len(out) == 1 else relax.Tuple(out))
        self._scopes[0].__exit__(None, None, None)
        return self.builder.get()


def names(mod, function="main"):
    """List the operators of a function, in order."""
    return [
        binding.value.op.name.removeprefix("relax.")
        for block in mod[function].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]


def well_typed(mod):
    """Insist that a module is well formed, and that each type is the one that inference gives."""
    relax.analysis.well_formed(mod)
    builder = relax.BlockBuilder()

    def look(expr):
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            bare = relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args)
            found = builder.normalize(bare).ty
            assert tvm_ffi.structural_equal(found, expr.ty), f"{expr}: {expr.ty}, not {found}"

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function.body, look)


def equal(a, b):
    return tvm_ffi.structural_equal(a, b, map_free_vars=True)


class Drawn:
    """A network drawn at random: operators over a few values, each with the reach it may have.

    `gaps` is how often a value is left unquantized between two operators.
    """

    def __init__(self, choose: random.Random, steps: int = 5, gaps: float = 0.0):
        self.choose, self.gaps = choose, gaps
        self.rng = np.random.default_rng(choose.randrange(2**32))
        channels, size = choose.choice((2, 4)), choose.choice((4, 6))
        self.shape = (choose.choice((1, 2)), channels, size, size)
        self.kind = choose.choice(("int8", "uint8"))
        self.net = Network((self.shape, self.kind))
        s, z = self.parameters(1.0, self.kind)
        # Float values of rank 4, each with how far it reaches.
        first = self.net.real(self.net.inputs[0], s, z)
        self.values = [(first, float(s) * 128)]
        for _ in range(steps):
            self.step()
        flat, reach = self.values[-1]
        if choose.random() < 0.5:
            flat, reach = self.head(flat, reach)
        s, z = self.parameters(reach, self.kind)
        self.mod = self.net.module(self.net.quantized(flat, s, z, self.kind))
        low, high = LIMITS[self.kind]
        self.inputs = [self.rng.integers(low, high + 1, self.shape).astype(self.kind)]

    def parameters(self, reach, dtype):
        """Draw a scale and zero point for values up to `reach`."""
        low, high = LIMITS[dtype]
        s = np.float32(reach * self.choose.uniform(0.6, 1.4) / (high - low) * 2)
        middle = (low + high + 1) // 2
        z = self.choose.choice((middle, low, middle + self.choose.randrange(-40, 40)))
        return s, z

    def step(self):
        x, reach = self.choose.choice(self.values[-3:])
        made, reach = getattr(self, self.choose.choice(_STEPS))(x, reach)
        if self.choose.random() < 0.3:
            made = self.net.emit(op.nn.relu(made))
        elif self.choose.random() < 0.2:
            made = self.net.emit(op.clip(made, 0.0, float(np.float32(reach / 2))))
        dtype = self.kind if self.choose.random() < 0.8 else self.choose.choice(("int8", "uint8"))
        s, z = self.parameters(reach, dtype)
        if self.choose.random() >= self.gaps:
            made = self.net.fake(made, s, z, dtype)
        self.values.append((made, reach))

    def conv2d(self, x, reach):
        channels = int(x.ty.shape[1])
        groups = self.choose.choice((1, 1, channels))
        made = channels if groups > 1 else self.choose.choice((2, 4))
        taps = self.choose.choice((1, 3))
        w = self.rng.integers(-127, 128, (made, channels // groups, taps, taps)).astype("int8")
        each = self.choose.random() < 0.5
        s = self.rng.uniform(0.5, 1.5, made if each else ()).astype("float32") / 100
        weight = self.net.weight(w, s, 0 if not each else np.zeros(made))
        made = self.net.emit(op.nn.conv2d(x, weight, padding=taps // 2, groups=groups))
        reach = reach * 0.7 * np.sqrt(w[0].size)
        if self.choose.random() < 0.6:
            bias = self.rng.normal(size=(1, w.shape[0], 1, 1)).astype("float32") * reach / 4
            made = self.net.emit(op.add(made, relax.const(bias)))
        return made, reach

    def other(self, x):
        """Find another value of the same shape, or the same one."""
        same = [v for v in self.values if list(v[0].ty.shape) == list(x.ty.shape)]
        return self.choose.choice(same)

    def add(self, x, reach):
        y, other = self.other(x)
        function = self.choose.choice((op.add, op.subtract))
        return self.net.emit(function(x, y)), reach + other

    def mul(self, x, reach):
        y, other = self.other(x)
        return self.net.emit(op.multiply(x, y)), reach * other

    def concat(self, x, reach):
        y, other = self.other(x)
        if int(x.ty.shape[1]) > 4:
            return self.relu(x, reach)
        return self.net.emit(op.concat([x, y], axis=1)), max(reach, other)

    def relu(self, x, reach):
        return self.net.emit(op.nn.relu(x)), reach

    def max_pool(self, x, reach):
        return self.net.emit(op.nn.max_pool2d(x, (2, 2), padding=(0, 0, 1, 1))), reach

    def avg_pool(self, x, reach):
        """Pool, with ``ceil_mode`` with windows that are not full, or would be of padding alone."""
        size, ceil = self.choose.choice((2, 3)), self.choose.random() < 0.5
        how = {"strides": self.choose.choice((2, 3)) if ceil else 1, "ceil_mode": ceil}
        counted = self.choose.random() < 0.5
        pool = op.nn.avg_pool2d(x, (size, size), padding=1, count_include_pad=counted, **how)
        return self.net.emit(pool), reach

    def paired(self, x, reach):
        """Put values into a tuple and read them from it."""
        y, other = self.other(x)
        pair = self.net.emit(relax.Tuple([self.net.emit(op.nn.relu(x)), y]))
        sides = [self.net.emit(relax.TupleGetItem(pair, i)) for i in (0, 1)]
        return self.net.emit(op.add(*sides)), reach + other

    def scaled(self, x, reach):
        channels = int(x.ty.shape[1])
        gains = self.rng.normal(size=channels).astype("float32")
        if self.choose.random() < 0.3:
            gains[0] = 0
        shift = self.rng.normal(size=channels).astype("float32") * reach / 4
        ones = relax.const(np.ones(channels, "float32"))
        norm = op.nn.batch_norm(
            x, relax.const(gains), relax.const(shift), relax.const(shift), ones, 1, training=False
        )
        return self.net.emit(self.net.emit(norm)[0]), reach * 2

    def moved(self, x, reach):
        n, c, h, w = (int(size) for size in x.ty.shape)
        made = self.net.emit(op.permute_dims(x, [0, 1, 3, 2]))
        made = self.net.emit(op.reshape(made, (n, c, h * w)))
        return self.net.emit(op.reshape(made, (n, c, h, w))), reach

    def padded(self, x, reach):
        if int(x.ty.shape[2]) > 6:
            return self.relu(x, reach)
        return self.net.emit(op.nn.pad(x, [0, 0, 0, 0, 0, 1, 1, 0])), reach

    def head(self, x, reach):
        """End as classifiers do: a mean, a reshape, a matrix product."""
        n, c = int(x.ty.shape[0]), int(x.ty.shape[1])
        s, z = self.parameters(reach, self.kind)
        mean = self.net.fake(self.net.emit(op.mean(x, [2, 3], keepdims=True)), s, z, self.kind)
        flat = self.net.emit(op.reshape(mean, (n, c)))
        w = self.rng.integers(-127, 128, (5, c)).astype("int8")
        turned = self.net.emit(op.permute_dims(self.net.weight(w, 0.01)))
        return self.net.emit(op.matmul(flat, turned)), reach * 0.7 * np.sqrt(c)


_STEPS = [
    *("conv2d", "conv2d", "add", "add", "mul", "concat", "relu", "max_pool"),
    *("avg_pool", "avg_pool", "paired", "scaled", "moved", "padded"),
]
