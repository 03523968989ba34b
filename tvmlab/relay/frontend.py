"""Relay's importers on top of `tvmlab.load`: a module and its parameters, with Relay's names."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, relax, tirx

from ..errors import ModelError, RelayError, ShapeError
from ..ir import gone
from ..ir.dialect import NARROW, OUTPUT_NAMES
from ..ir.graph import substitute
from ..ir.module import normal
from ..support.extras import need
from .expr import Function, refuse

__path__: list[str] = []  # see gone.ImportFinder


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    **options: Any,
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Import an ONNX model as a module, and return the parameters that are not frozen.

    Raises the errors of `tvmlab.load`, and `RelayError` for Relay's other arguments.

    Parameters
    ----------
    model : onnx.ModelProto
        The model; for a file, call `tvmlab.load`.
    shape : mapping of str to shape, optional
        The inputs' shapes; `relay.Any` is a size that is only known at run time.
    dtype : str or mapping of str to str
        Relay's argument; a mapping must contain the model's own dtypes.
    freeze_params : bool
        Make weights constants, as Relay does by default. Otherwise they are parameters of ``main``.
    """
    refuse("frontend.from_onnx", opset=opset, **options)
    from ..frontend.onnx import import_proto

    where, proto = "ModelProto", getattr(model, "proto", model)
    if not hasattr(proto, "graph"):
        what = f"from_onnx takes an onnx.ModelProto, not a {type(model).__name__}"
        raise RelayError(what, fix="read the file with onnx.load")
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value.name for value in proto.graph.input if value.name not in weights]
    sizes = {k: _sizes(k, dims) for k, dims in (shape or {}).items() if k not in weights}
    mod = import_proto(proto, sizes, folder=None, where=where, keep_params=not freeze_params)
    mod, params = _detached(mod, inputs)
    _expect(mod, None if isinstance(dtype, str) else dtype, lambda type_: str(type_.dtype))
    return mod, params


def from_tflite(
    model: Any,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    dtype_dict: Mapping[str, str] | None = None,
    **options: Any,
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Import a TensorFlow Lite model as a module with constant weights, and an empty dict.

    The `model` is a `tflite.Model` or bytes. The file contains its shapes and dtypes, so
    `shape_dict` and `dtype_dict` must match them. Raises the errors of `tvmlab.load`.
    """
    refuse("frontend.from_tflite", **options)
    from ..frontend.tflite import import_bytes

    where = "tflite.Model"
    data = model if isinstance(model, (bytes, bytearray)) else model._tab.Bytes
    mod, params = _detached(import_bytes(bytes(data), where=where))
    _expect(mod, shape_dict, _shape)
    _expect(mod, dtype_dict, lambda type_: str(type_.dtype))
    return mod, params


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[Any],
    custom_convert_map: Mapping[str, Any] | None = None,
    default_dtype: str = "float32",
    **options: Any,
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Import a PyTorch model as a module, and its weights.

    The weights are parameters of ``main``, with the names of the model's ``state_dict``. Raises the
    errors of `tvmlab.load`, and `RelayError` for Relay's other arguments.

    Parameters
    ----------
    script_module : torch.export.ExportedProgram, torch.jit.ScriptModule or torch.nn.Module
        The model. A module, or a result of ``torch.jit.trace`` as for Relay, is exported first.
    input_infos : sequence of (str, shape) or (str, (shape, dtype))
        The inputs' names, shapes and dtypes, in order; inputs without a dtype get `default_dtype`.
    """
    refuse("frontend.from_pytorch", custom_convert_map=custom_convert_map, **options)
    from ..frontend.pytorch import import_program

    infos = [_info(info, default_dtype) for info in input_infos]
    program = _exported(script_module, infos)
    mod = import_program(program, keep_params=True)
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return _detached(mod, [name for name, _, _ in infos], names)


def _expect(mod: ir.IRModule, given: Mapping[str, Any] | None, read: Callable[[Any], Any]) -> None:
    """Refuse shapes or dtypes of inputs that differ from the model's."""
    for param in mod["main"].params:
        real = read(param.ty)
        wanted = (given or {}).get(param.name, real)
        if wanted != real and tuple(wanted) != real:
            what = f"input {param.name!r} is {real} in the model, not {wanted}"
            raise ShapeError(what, fix="leave it out, or convert the model again")


def _shape(type_: Any) -> tuple[int | str, ...]:
    return tuple(int(n) if isinstance(n, tirx.IntImm) else str(n) for n in type_.shape)


def _sizes(name: str, dims: Sequence[Any]) -> tuple[int | str, ...]:
    """Convert Relay's sizes; each `Any` or -1 becomes a separate size that is known at run time."""
    base = "".join(c if c.isalnum() else "_" for c in name)
    return tuple(
        f"{base}_{index}" if isinstance(size, tirx.Var) or size == -1 else int(size)
        for index, size in enumerate(dims)
    )


def _info(info: Any, default: str) -> tuple[str, tuple[int, ...], str]:
    """Return an input's name, shape and dtype."""
    try:
        name, shape = info
        if len(shape) == 2 and isinstance(shape[1], str):
            shape, default = shape
        return str(name), tuple(int(size) for size in shape), str(default)
    except (TypeError, ValueError) as error:
        what = 'an input must be (name, shape) or (name, (shape, "float32"))'
        raise RelayError(what, where=repr(info)) from error


def _exported(model: Any, infos: Sequence[tuple[str, tuple[int, ...], str]]) -> Any:
    """Export a model that is not yet an exported program."""
    torch = need("torch", extra="torch")
    if isinstance(model, torch.export.ExportedProgram):
        return model
    samples = tuple(
        torch.zeros(shape, dtype=getattr(torch, {"float": "float32"}.get(dtype, dtype)))
        for _, shape, dtype in infos
    )
    try:
        model = model.eval()
        if isinstance(model, torch.jit.ScriptModule):
            from torch._export.converter import TS2EPConverter

            # The converter leaves sizes symbolic if it can; exporting again fixes them.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one for each buffer of a batch normalization
                model = TS2EPConverter(model, samples).convert().module()
        return torch.export.export(model, samples)
    except Exception as error:  # tracing a model can raise any class
        raise ModelError(
            f"the model cannot be exported: {str(error).strip().splitlines()[0]}",
            where=type(model).__name__,
            fix="pass the result of torch.export.export(module.eval(), (example_input,))",
        ) from error


def _detached(
    mod: ir.IRModule, inputs: Sequence[str] = (), weights: Mapping[str, str] | None = None
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Remove the values of the weights from ``main``, and rename its parameters as in Relay."""
    main = mod["main"]
    values = list(main.attrs.get("params", []))
    count = len(main.params) - len(values)
    old = [param.name for param in main.params]
    if inputs and len(inputs) != count:
        what = f"the model has {count} inputs, but input_infos names {len(inputs)}"
        raise RelayError(what, where=", ".join(old), fix="name each input once, in order")
    held = [(weights or {}).get(name, name) for name in old[count:]]
    names = [*(inputs or old[:count]), *held]
    if names != old:
        new = [relax.Var(name, var.ty) for name, var in zip(names, main.params, strict=True)]
        body = substitute(main.body, dict(zip(main.params, new, strict=True)))
        main = normal(Function(new, body, attrs=main.attrs))
    # Relay's ``main`` had no such attributes.
    for name in ("params", "num_input", OUTPUT_NAMES, NARROW):
        if name in main.attrs:
            main = main.without_attr(name)
    mod = mod.clone()
    mod["main"] = main
    return mod, dict(zip(held, values, strict=True))


def __getattr__(name: str) -> Any:
    raise gone.missing("frontend", name, globals())
