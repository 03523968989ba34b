"""Running modules of quantized and float operators: in NumPy by bindings, and as one library.

Quantized operators are `tvmlab.qnn.arithmetic`'s. Float operators are computed in float64, so that
what a quantize rounds is the real number and not what float32 makes of it.
"""

from __future__ import annotations

import numpy as np
import torch
import tvm
from tvm import relax

from tvmlab.ir import dialect
from tvmlab.qnn import arithmetic, checks
from tvmlab.qnn.operator import OPERATORS


def run(mod, *inputs, forced=None, name="main", functions=None):
    """Run a function; give its result and every variable's value by name.

    `functions` computes calls of global functions, by their names. `forced` gives values that take
    the place of what is computed, by the variable's name: with the integers of one module, each
    operator of the other is computed from the same operands.
    """
    function = mod[name]
    values = dict(zip(function.params, map(np.asarray, inputs), strict=True))
    values |= {mod.get_global_var(one): call for one, call in (functions or {}).items()}
    computed = {}
    result = _body(function.body, values, computed, forced or {})
    return result, computed


def _body(body, values, computed, forced):
    for block in body.blocks:
        for binding in block.bindings:
            value = _value(binding.value, values, computed, forced)
            computed[binding.var.name] = value
            values[binding.var] = forced.get(binding.var.name, value)
    return _value(body.body, values, computed, forced)


def _value(expr, values, computed, forced):
    if isinstance(expr, relax.Var):
        return values[expr]
    if isinstance(expr, tvm.ir.GenericConst):
        return expr.value.numpy()
    if isinstance(expr, relax.Tuple):
        return tuple(_value(field, values, computed, forced) for field in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return _value(expr.tuple_value, values, computed, forced)[expr.index]
    if isinstance(expr, relax.If):
        chosen = _value(expr.cond, values, computed, forced)
        branch = expr.true_branch if bool(chosen) else expr.false_branch
        return _body(branch, values, computed, forced)
    if isinstance(expr, relax.ShapeExpr):
        return [int(size) for size in expr.values]
    if isinstance(expr, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return expr.value
    if hasattr(expr, "value"):  # a number as Relax wraps it
        return expr.value.value
    assert isinstance(expr, relax.Call), type(expr)
    if isinstance(expr.op, tvm.ir.GlobalVar):
        return values[expr.op](*(_value(arg, values, computed, forced) for arg in expr.args))
    name = expr.op.name.removeprefix("relax.")
    args = [_value(arg, values, computed, forced) for arg in expr.args]
    if name.startswith("qnn."):
        named = zip(OPERATORS[name[4:]].operands, args, strict=True)
        return getattr(arithmetic, name[4:])(**dict(named), **dialect.attributes(expr))
    made = _PLAIN[name](expr, *args)
    dtype = getattr(expr.ty, "dtype", None)
    if dtype is None or str(dtype).startswith("float"):
        return made
    return np.asarray(made).astype(str(dtype))


def _real(x):
    return np.asarray(x, np.float64) if np.asarray(x).dtype.kind == "f" else np.asarray(x)


def _along(values, ndim, axis):
    values = np.asarray(values)
    if values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if i == axis % ndim else 1 for i in range(ndim)])


def _quantize(call, x, scale, zero):
    """As `R.quantize`: half-way cases to even; what is float32 is divided in float32."""
    ndim, axis, dtype = x.ndim, int(call.attrs.axis), str(call.attrs.out_dtype)
    whole = np.round(x / _along(scale, ndim, axis).astype(x.dtype)).astype(np.float64)
    whole = whole + _along(zero, ndim, axis)
    return np.clip(whole, *checks.limits(dtype)).astype(dtype)


def _dequantize(call, x, scale, zero):
    ndim, axis = x.ndim, int(call.attrs.axis)
    whole = x.astype(np.int64) - _along(zero, ndim, axis).astype(np.int64)
    return whole * _along(scale, ndim, axis).astype(np.float64)


def _torch(x, layout, wanted):
    return torch.from_numpy(
        np.ascontiguousarray(_real(x).transpose([layout.index(letter) for letter in wanted]))
    )


def _numbers(*attributes):
    return ([int(n) for n in each] for each in attributes)


def _back(made, layout):
    return made.numpy().transpose(["NCHW".index(letter) for letter in str(layout)])


def _conv2d(call, x, w):
    a = call.attrs
    (top, left, bottom, right), strides, dilation = _numbers(a.padding, a.strides, a.dilation)
    data = _torch(x, str(a.data_layout), "NCHW")
    data = torch.nn.functional.pad(data, (left, right, top, bottom))
    weight = _torch(w, str(a.kernel_layout), "OIHW")
    made = torch.nn.functional.conv2d(data, weight, None, strides, 0, dilation, int(a.groups))
    return _back(made, a.out_layout)


def _conv2d_transpose(call, x, w):
    a = call.attrs
    pads, strides, more, dilation = _numbers(a.padding, a.strides, a.output_padding, a.dilation)
    assert pads[:2] == pads[2:]
    sides = _torch(x, str(a.data_layout), "NCHW"), _torch(w, str(a.kernel_layout), "IOHW")
    how = (None, strides, pads[:2], more, int(a.groups), dilation)
    return _back(torch.nn.functional.conv_transpose2d(*sides, *how), a.out_layout)


def _avg_pool(call, x):
    a, layout = call.attrs, str(call.attrs.layout)
    size, strides, pads = _numbers(a.pool_size, a.strides, a.padding)
    assert pads[:2] == pads[2:]
    how = (size, strides, pads[:2], bool(a.ceil_mode), bool(a.count_include_pad))
    data = _torch(np.asarray(x, np.float64), layout, "NCHW")
    return _back(torch.nn.functional.avg_pool2d(data, *how), layout)


def _max_pool(call, x):
    """Pad as far as the last window reaches; the type says how many windows there are."""
    a, layout = call.attrs, str(call.attrs.layout)
    data = np.transpose(x, [layout.index(letter) for letter in "NCHW"]).astype(np.float64)
    out = [int(call.ty.shape[layout.index(letter)]) for letter in "HW"]
    size, strides, steps, (top, left, *_) = _numbers(a.pool_size, a.strides, a.dilation, a.padding)
    reach = [
        (count - 1) * stride + (taps - 1) * step + 1
        for count, stride, taps, step in zip(out, strides, size, steps, strict=True)
    ]
    wide = np.pad(data, [(0, 0), (0, 0), (top, reach[0]), (left, reach[1])],
                  constant_values=-np.inf)[:, :, : reach[0], : reach[1]]  # fmt: skip
    made = torch.nn.functional.max_pool2d(torch.from_numpy(wide), size, strides, 0, steps)
    return _back(made, layout).astype(x.dtype)


def _adaptive(call, x):
    layout = str(call.attrs.layout)
    size = [int(call.ty.shape[layout.index(letter)]) for letter in "HW"]
    made = torch.nn.functional.adaptive_avg_pool2d(_torch(x, layout, "NCHW"), size)
    return _back(made, layout)


def _batch_norm(call, x, gamma, beta, mean, variance):
    axis, a = int(call.attrs.axis), call.attrs
    gamma, beta, mean, variance = (
        _along(_real(part), x.ndim, axis) for part in (gamma, beta, mean, variance)
    )
    scaled = (x - mean) / np.sqrt(variance + float(a.epsilon))
    made = scaled * (gamma if a.scale else 1) + (beta if a.center else 0)
    return made, mean, variance


def _pad(call, x):
    widths = [int(n) for n in call.attrs.pad_width]
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    return np.pad(x, pairs, constant_values=call.attrs.pad_value)


def _softmax(call, x):
    shifted = np.exp(x - x.max(axis=int(call.attrs.axis), keepdims=True))
    return shifted / shifted.sum(axis=int(call.attrs.axis), keepdims=True)


def _axes(call):
    return None if call.attrs.axis is None else tuple(int(i) for i in call.attrs.axis)


def _over(function):
    def reduce(call, x):
        return function(x, axis=_axes(call), keepdims=bool(call.attrs.keepdims))

    return reduce


def _order(call):
    return None if call.attrs.axes is None else [int(i) for i in call.attrs.axes]


def _split(call, x):
    given = call.attrs.indices_or_sections
    places = [int(i) for i in given] if hasattr(given, "__len__") else int(given)
    return tuple(np.split(x, places, axis=int(call.attrs.axis)))


def _shaped(call, x, *_):
    return np.reshape(x, [int(size) for size in call.ty.shape])


def _strided_slice(call, x, axes, begin, end, strides=None):
    index = [slice(None)] * x.ndim
    for i, axis in enumerate(axes):
        index[int(axis)] = slice(begin[i], end[i], strides[i] if strides else 1)
    return x[tuple(index)]


_PLAIN = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d_transpose,
    "nn.max_pool2d": _max_pool,
    "nn.avg_pool2d": _avg_pool,
    "nn.adaptive_avg_pool2d": _adaptive,
    "nn.batch_norm": _batch_norm,
    "nn.relu": lambda call, x: np.maximum(x, 0),
    "nn.softmax": _softmax,
    "nn.pad": _pad,
    "relay.nn.bias_add": lambda call, x, b: x + _along(b, x.ndim, int(call.attrs["axis"])),
    "relay.nn.dense": lambda call, x, y: np.matmul(_real(x), _real(y).T),
    "relay.nn.batch_matmul": lambda call, x, y: np.matmul(  # both transposed
        _real(x).swapaxes(1, 2), _real(y).swapaxes(1, 2)
    ),
    "relay.nn.global_avg_pool2d": lambda call, x: _real(x).mean((2, 3), keepdims=True),
    "take": lambda call, x, i: np.take(x, i, int(call.attrs.axis)),
    "topk": lambda call, x: np.take(
        np.flip(np.sort(x, int(call.attrs.axis)), int(call.attrs.axis)),
        range(int(call.attrs.k)),
        int(call.attrs.axis),
    ),
    "clip": lambda call, x, low, high: np.clip(_real(x), low, high),
    "add": lambda call, x, y: _real(x) + _real(y),
    "subtract": lambda call, x, y: _real(x) - _real(y),
    "multiply": lambda call, x, y: _real(x) * _real(y),
    "divide": lambda call, x, y: _real(x) / _real(y),
    "maximum": lambda call, x, y: np.maximum(_real(x), _real(y)),
    "minimum": lambda call, x, y: np.minimum(_real(x), _real(y)),
    "matmul": lambda call, x, y: np.matmul(_real(x), _real(y)),
    "astype": lambda call, x: x,
    "concat": lambda call, xs: np.concatenate(xs, axis=int(call.attrs.axis)),
    "split": _split,
    "mean": _over(np.mean),
    "sum": _over(lambda x, **how: np.sum(x.astype(np.int64) if x.dtype.kind == "i" else x, **how)),
    "max": _over(np.max),
    "permute_dims": lambda call, x: np.transpose(x, _order(call)),
    "strided_slice": _strided_slice,
    "broadcast_to": lambda call, x, shape: np.broadcast_to(x, shape),
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten"), _shaped),
}


def compiled(mods, folder):
    """Compile the `main` of many small modules as one library; give a function for each.

    It is written to a file, as only that object code is made at the target's optimization level.
    """
    functions = {
        f"main_{i}": mod["main"].with_attr("global_symbol", f"main_{i}")
        for i, mod in enumerate(mods)
    }
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})  # four times as fast to compile
    passes = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR")
    with target:
        mod = tvm.ir.transform.Sequential([getattr(relax.transform, each)() for each in passes])(
            tvm.IRModule(functions)
        )
    path = folder / f"{id(mods)}.so"
    tvm.compile(mod, target).export_library(str(path))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())

    def call(name):
        return lambda *arrays: machine[name](*map(tvm.runtime.tensor, arrays)).numpy()

    return [call(name) for name in functions]
