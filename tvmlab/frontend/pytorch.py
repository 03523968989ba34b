"""Import PyTorch exported programs into Relax, through upstream's importer.

**Quantized operators.** PT2E, PyTorch's quantization of exported programs, writes a quantized
network as float operators between operators of the library quantized_decomposed, which upstream's
importer does not support. PyTorch rounds ``x * (1 / scale)``, while ``R.quantize`` rounds
``x / scale``, both with ties to even. They differ by one step for about one value in ten million.

**Operators that index.** Upstream's converters have four errors. `embedding`, `gather`,
`index_select` and `scatter` refuse negative indices, which PyTorch's ``x[i]`` counts from the end.
`embedding` casts its ids to int32, which changes large ids. ``x[:, i, j]`` is converted to an outer
product. `grid_sample` gets its grid with the axis of the coordinates last, but Relax expects this
axis second.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

from ..errors import ModelError, UnsupportedOperatorError
from ..indices import NormalizeIndices, not_below_zero
from ..indices.loops import static
from ..ir.dialect import OUTPUT_NAMES
from ..ir.values import named
from ..support.wording import telling
from .checks import check_scales
from .custom import Converters, converters_of
from .pytorch_converters import CONVERTERS, arguments
from .pytorch_custom import FORM, convert_map, decomposed, kept_by
from .pytorch_results import checked
from .pytorch_sizes import sliced

__all__ = ["UNDECOMPOSED", "import_program"]

#: The attribute of ``main`` with the operators that users' converters kept from decomposition.
UNDECOMPOSED = "undecomposed"

_LIBRARY = "quantized_decomposed"
_PROGRAM = "the exported program"
# The name of the imported program in errors.
_SUPPORTED = (
    "quantize_per_tensor and dequantize_per_tensor (default, tensor, tensor2), "
    "quantize_per_channel and dequantize_per_channel, between float32 and int8, uint8, int16 or "
    "int32 (stored tensors only), with scales and zero points that are numbers or stored tensors"
)
_NAMES = ("per_tensor.default", "per_tensor.tensor", "per_tensor.tensor2", "per_channel.default")

# Relax's names of the reductions of scatter_reduce.
_REDUCTIONS = {"update": "update", "sum": "add", "prod": "mul", "amin": "min", "amax": "max"}

Converter = Callable[[Any, Any], relax.Expr]
Emit = Callable[[relax.Expr], relax.Var]


def import_program(
    program: Any, converters: Converters = None, *, keep_params: bool = False
) -> IRModule:
    """Import what ``torch.export.export`` returned; see `tvmlab.load`.

    Sizes declared dynamic stay symbolic. With `keep_params` weights are parameters of ``main``,
    after the inputs, and its attribute ``params`` holds their values.
    """
    from tvm.relax.frontend.torch import exported_program_translator as upstream

    custom = converters_of(converters, FORM, "mylib::swish")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _validate(program)
            names = program.graph_signature.user_outputs  # before decompositions rename them
            # Decompose here as upstream would, because the converters name nodes of this program.
            kept = kept_by(program, custom)
            program = decomposed(program, kept)
            _refuse_state(program)
            importer = upstream.ExportedProgramImporter()
            bounds = _bounds(program)
            ours = {**CONVERTERS, **_INDEX_CONVERTERS, **quantized_converters(program)}
            ours["slice.Tensor"] = partial(sliced, bounds)
            table = convert_map(program, custom, ours, importer.convert_map)
            table = checked(table, importer, bounds)
            mod = importer.from_exported_program(program, keep_params, True, False, table)
            mod = named(mod, {node.name: value for node, value in importer.env.items()})
            normalize: Any = NormalizeIndices()
            mod = normalize(mod)
            if kept:
                mod["main"] = mod["main"].with_attr(UNDECOMPOSED, kept)
            if all(isinstance(name, str) for name in names):  # others are constants or None
                mod["main"] = mod["main"].with_attr(OUTPUT_NAMES, list(names))
            return mod
    except ModelError:
        raise
    except Exception as error:  # upstream raises many classes
        fix = "export the module in evaluation mode, and check that it runs in PyTorch"
        what = f"TVM's importer failed: {telling(error)}"
        raise ModelError(what, where=_PROGRAM, fix=fix) from error


def _bounds(program: Any) -> dict[str, tuple[int, int]]:
    """Return the least and the largest value of each symbolic size."""
    ranges = program.range_constraints.items()
    far = 2**31  # instead of infinity
    return {str(one): (int(max(of.lower, -far)), int(min(of.upper, far))) for one, of in ranges}


def _validate(program: Any) -> None:
    """Refuse a program that PyTorch's own verifier refuses."""
    try:
        program.validate()
    except Exception as error:  # the verifiers raise several classes
        what = f"the exported program is not valid: {telling(error)}"
        raise ModelError(what, where=_PROGRAM, fix="export the module again") from error


def _refuse_state(program: Any) -> None:
    """Refuse a program that writes to its buffers or inputs.

    The importer would drop the write, so later calls would return other results than PyTorch.
    """
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        what = f"the program writes to its buffers or inputs: {', '.join(map(repr, changed))}"
        fix = "export module.eval(), and return new values instead of writing to buffers or inputs"
        raise ModelError(what, where=_PROGRAM, fix=fix)


# Quantized operators


def quantized_converters(program: Any) -> dict[str, Converter]:
    """Make the converters for a `torch.export.ExportedProgram`, by the keys of upstream's importer.

    The converters contain the program's scales and zero points, so each program has its own.
    """
    stored = {**program.constants, **program.state_dict}
    signature = program.graph_signature
    places = {
        **signature.inputs_to_buffers,
        **signature.inputs_to_parameters,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {name: stored[target] for name, target in places.items() if target in stored}
    convert = _Converter(values)
    return {f"{kind}_{name}": convert for kind in ("quantize", "dequantize") for name in _NAMES}


class _Converter:
    """Converter of a node to a call; `values` has stored tensors by the names of their nodes."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __call__(self, node: Any, importer: Any) -> relax.Expr:
        """Emit the operator of a node, called by upstream's importer."""
        given = arguments(node)
        source, dtype = given["input"], str(given["dtype"]).removeprefix("torch.")
        if dtype not in ("int8", "uint8", "int16", "int32"):
            raise _unsupported(node, f"it quantizes to {dtype}")
        scale = self.value(node, given, "scale").astype("float32")
        zero = self.value(node, given, "zero_point")
        sizes = [size if isinstance(size, int) else None for size in source.meta["val"].shape]
        axis = given.get("axis", -1)
        check_scales(scale, zero, dtype, sizes, axis, where=_where(node))
        axis = axis % len(sizes) if "axis" in given else -1
        zero = np.broadcast_to(zero, scale.shape).astype("int32")
        operands, emit = (relax.const(scale), relax.const(zero), axis), importer.block_builder.emit
        if node.target.__name__.startswith("dequantize"):
            out = given.get("out_dtype")
            if out is not None and str(out) != "torch.float32":
                raise _unsupported(node, f"the result is {out}")
            return emit(op.dequantize(importer.env[source], *operands))
        if str(source.meta["val"].dtype) != "torch.float32":
            raise _unsupported(node, f"it reads {source.meta['val'].dtype}")
        if source.name in self.values:  # PyTorch quantizes stored tensors, biases to int32
            stored = {n: self.values.get(getattr(v, "name", ""), v) for n, v in given.items()}
            return relax.const(node.target(**stored).detach().cpu().numpy())
        if dtype == "int32":
            raise _unsupported(node, "it quantizes a computed value to int32")
        made, info = emit(op.quantize(importer.env[source], *operands, dtype)), np.iinfo(dtype)
        low, high = (int(self.value(node, given, name)) for name in ("quant_min", "quant_max"))
        return made if (low, high) == (info.min, info.max) else emit(op.clip(made, low, high))

    def value(self, node: Any, given: dict[str, Any], name: str) -> npt.NDArray[Any]:
        """Return the value of an argument: a number, a stored tensor, or the default."""
        many = f"{name}s" in given
        value = given.get(f"{name}s" if many else name)
        if value is None:
            return np.zeros((), "int32")
        if not isinstance(value, (bool, int, float)):
            if value.name not in self.values:
                raise _unsupported(node, f"its {name} is computed at run time, by {value}")
            value = self.values[value.name].detach().cpu().numpy()
        return np.asarray(value) if many else np.asarray(value).reshape(())


def _where(node: Any) -> str:
    return f"node {node.name!r}, operator {_LIBRARY}.{node.target.__name__}"


def _unsupported(node: Any, why: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"tvmlab cannot import this quantized operator: {why}",
        where=_where(node),
        fix=f"quantize the network statically; tvmlab supports {_SUPPORTED}",
    )


# Operators that index


def _embedding(given: dict[str, Any], emit: Emit) -> relax.Var:
    return emit(op.take(given["weight"], not_below_zero(given["indices"], emit), 0))


def _index_select(given: dict[str, Any], emit: Emit) -> relax.Var:
    index = not_below_zero(emit(op.reshape(given["index"], [-1])), emit)
    return emit(op.take(given["self"], index, given["dim"]))


def _gather(given: dict[str, Any], emit: Emit) -> relax.Var:
    index = not_below_zero(given["index"], emit)
    return emit(op.gather_elements(given["self"], index, given["dim"]))


def _scatter(given: dict[str, Any], emit: Emit) -> relax.Var:
    data, index = given["self"], given["index"]
    shape = list(index.ty.shape.values)
    if "src" in given:
        source = given["src"]
        if not tvm_ffi.structural_equal(source.ty.shape, index.ty.shape):
            axes = list(range(len(shape)))
            source = emit(op.strided_slice(source, axes, [0] * len(shape), shape))
    else:
        value = relax.const(given["value"], str(data.ty.dtype))
        source = emit(op.broadcast_to(value, shape))
    kind = _REDUCTIONS[given.get("reduce", "update")]
    index = not_below_zero(index, emit)
    return emit(op.scatter_elements(data, index, source, given["dim"], kind))


def _scatter_reduce(given: dict[str, Any], emit: Emit) -> relax.Var:
    given.setdefault("reduce", "sum")  # scatter_add has no argument for it
    if str(given["self"].ty.dtype) == "bool":
        what, fix = "scatter_reduce of bools", "convert the tensor to integers"
        raise UnsupportedOperatorError(what, where=_PROGRAM, fix=fix)
    return _scatter(given, emit)


def _index(given: dict[str, Any], emit: Emit) -> relax.Var:
    data = given["self"]
    placed = {axis: index for axis, index in enumerate(given["indices"]) if index is not None}
    if any(str(index.ty.dtype) == "bool" for index in placed.values()):
        what = "TVM cannot index with a mask: the shape of the result depends on the values"
        raise UnsupportedOperatorError(what, where=_PROGRAM, fix="use torch.where, or indices")
    axes = list(placed)
    if len(axes) == 1:
        return emit(op.take(data, placed[axes[0]], axes[0]))
    rest = [axis for axis in range(data.ty.ndim) if axis not in placed]
    if axes != list(range(len(axes))):
        data = emit(op.permute_dims(data, [*axes, *rest]))
    made = emit(op.index_tensor(data, [placed[axis] for axis in axes]))
    # The axes of the indices replace the indexed axes, or come first if those are not adjacent.
    new = made.ty.ndim - len(rest)
    before = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    if not before:
        return made
    order = [*range(new, new + before), *range(new), *range(new + before, made.ty.ndim)]
    return emit(op.permute_dims(made, order))


def _index_put(given: dict[str, Any], emit: Emit) -> relax.Var:
    """Write values to the front axes with `scatter_nd`, after a transposition."""
    data, values = given["self"], given["values"]
    if given["accumulate"] and str(data.ty.dtype) == "bool":
        what, fix = "index_put that accumulates bools", "convert the tensor to integers"
        raise UnsupportedOperatorError(what, where=_PROGRAM, fix=fix)
    placed = {axis: index for axis, index in enumerate(given["indices"]) if index is not None}
    if any(str(index.ty.dtype) == "bool" for index in placed.values()):
        mask, single = placed.get(0), all(static(size) == 1 for size in values.ty.shape.values)
        if len(placed) > 1 or mask is None or given["accumulate"] or not single:
            what = "TVM cannot write to a mask: the number of values depends on the mask"
            raise UnsupportedOperatorError(what, where=_PROGRAM, fix="use torch.where, or indices")
        mask = op.reshape(mask, [*mask.ty.shape.values, *[1] * (data.ty.ndim - mask.ty.ndim)])
        return emit(op.where(mask, op.reshape(values, []), data))
    if len(placed) == data.ty.ndim and all(index.ty.ndim == 1 for index in placed.values()):
        indices = relax.Tuple(list(placed.values()))
        return emit(op.index_put(data, indices, values, given["accumulate"]))
    sizes = [static(size) for size in data.ty.shape.values]
    shapes: list[Any] = [[static(n) for n in one.ty.shape.values] for one in placed.values()]
    if None in itertools.chain(sizes, *shapes):
        what, fix = "index_put of a size that is known at run time", "export with static sizes"
        raise UnsupportedOperatorError(what, where=_PROGRAM, fix=fix)
    axes, whole = list(placed), list(np.broadcast_shapes(*map(tuple, shapes)))
    rest = [axis for axis in range(len(sizes)) if axis not in placed]
    before = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    others = [sizes[axis] for axis in rest]
    values = emit(op.broadcast_to(values, [*others[:before], *whole, *others[before:]]))
    moved = range(before, before + len(whole))
    values = op.permute_dims(
        values, [*moved, *(n for n in range(values.ty.ndim) if n not in moved)]
    )
    parts = []
    for axis, index in placed.items():
        index = emit(op.astype(index, "int64"))
        counted = op.add(index, relax.const(sizes[axis], "int64"))
        index = op.where(op.less(index, relax.const(0, "int64")), counted, index)
        parts.append(op.broadcast_to(index, whole))
    index = not_below_zero(emit(op.stack(parts, -1)), emit)
    order = [*axes, *rest]
    mode = "add" if given["accumulate"] else "update"
    made = op.scatter_nd(emit(op.permute_dims(data, order)), index, emit(values), mode)
    return emit(op.permute_dims(made, [order.index(axis) for axis in range(len(order))]))


def _grid_sample(given: dict[str, Any], emit: Emit) -> relax.Var:
    data, aligned = given["input"], bool(given["align_corners"])
    method = ("bilinear", "nearest", "bicubic")[given["interpolation_mode"]]
    padding = ("zeros", "border", "reflection")[given["padding_mode"]]
    if padding == "reflection" and aligned and 1 in [static(n) for n in data.ty.shape.values[2:]]:
        what = "grid_sample: TVM divides by zero when it reflects in an image of one row or column"
        fix = "use align_corners=False, or another padding_mode"
        raise UnsupportedOperatorError(what, where=_PROGRAM, fix=fix)
    last = data.ty.ndim - 1
    grid = emit(op.permute_dims(given["grid"], [0, last, *range(1, last)]))
    layout = "NCHW" if last == 3 else "NCDHW"
    return emit(op.image.grid_sample(data, grid, method, layout, padding, aligned))


def _converter(convert: Callable[[dict[str, Any], Emit], relax.Var]) -> Callable[..., relax.Var]:
    def converted(node: Any, importer: Any) -> relax.Var:
        given = {name: importer._retrieve_args(value) for name, value in arguments(node).items()}
        return convert(given, importer.block_builder.emit)

    return converted


# The keys are the names that upstream's importer looks up.
_INDEX_CONVERTERS = {
    "embedding.default": _converter(_embedding),
    "index_select.default": _converter(_index_select),
    "gather.default": _converter(_gather),
    "scatter.src": _converter(_scatter),
    "scatter.value": _converter(_scatter),
    "scatter_add.default": _converter(_scatter_reduce),
    "scatter_reduce.two": _converter(_scatter_reduce),
    "index.Tensor": _converter(_index),
    "index_put.default": _converter(_index_put),
    "grid_sampler_2d.default": _converter(_grid_sample),
    "grid_sampler_3d.default": _converter(_grid_sample),
}
