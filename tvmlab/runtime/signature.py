"""The inputs and outputs of a compiled function, and the check of a call's arguments."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..errors import CompileError, InputError
from ..ir.dialect import NARROW, OUTPUT_NAMES, WIDENED

__all__ = ["Input", "Output", "Signature"]

# The function's attribute with the largest sizes.
_MOST = "tir_var_upper_bound"
# How TVM writes the numbers in a formula.
_INT64 = re.compile(r"T\.int64\((-?\d+)\)")


@dataclass(frozen=True)
class Input:
    """One input of a function.

    Attributes
    ----------
    name : str
        The parameter's name.
    shape : tuple of int or str
        Sizes; a name is a size known only at run time, equal for equal names.
    dtype : str
        For example ``"float32"``.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    @property
    def stored(self) -> str:
        """The dtype of the tensor in TVM, which has 8 bits for 2 and 4."""
        return WIDENED.get(self.dtype, self.dtype)

    def __str__(self) -> str:
        """Format the input like a declaration."""
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Output:
    """One output of a function; the fields of a tuple are outputs of their own.

    Attributes
    ----------
    name : str
        The name in the model; without one, its position: ``"output_0"``, or ``"output_0_1"`` for
        a tuple in a tuple.
    shape : tuple of int or str, or None
        Sizes; a string is a formula over sizes that are known only at run time. None if even
        the number of dimensions is known.
    dtype : str
        For example ``"float32"``; ``"shape"`` for a tuple of sizes.
    """

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str

    def __str__(self) -> str:
        """Format the output like a declaration."""
        sizes = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{sizes}]"


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a function, in order, and the largest sizes, by name, if any."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...] = ()
    most: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, func: relax.Function) -> Signature:
        """Read the signature of a Relax function; `CompileError` for an unknown shape."""
        inputs = []
        for param in func.params:
            where = f"main({param.name}: {param.ty})"
            if not isinstance(param.ty, relax.TensorType):
                fix = "pass each field of a tuple as a separate tensor parameter"
                raise CompileError(
                    f"parameter {param.name!r} is not a tensor", where=where, fix=fix
                )
            if param.ty.shape is None:
                fix = (
                    f'tvmlab.load(model, shapes={{{param.name!r}: (1, 3, "n")}}), with a name for '
                )
                raise CompileError(
                    f"parameter {param.name!r} is a tensor, and its shape is not known",
                    where=where,
                    fix=f"set it: {fix}each size that is known only at run time",
                )
            inputs.append(Input(param.name, _sizes(param.ty.shape), str(param.ty.dtype)))
        outputs = _outputs(func.ret_ty, "output")
        names = [str(name) for name in (func.attrs or {}).get(OUTPUT_NAMES, ())]
        # A pass can change the outputs, and a file cannot contain two outputs of one name.
        if len(names) == len(outputs) == len(set(names)) and all(names):
            outputs = [replace(one, name=name) for one, name in zip(outputs, names, strict=True)]
        narrow = (func.attrs or {}).get(NARROW, {})
        most = (func.attrs or {}).get(_MOST, {})
        return cls(
            tuple(replace(one, dtype=str(narrow.get(one.name, one.dtype))) for one in inputs),
            tuple(replace(one, dtype=str(narrow.get(one.name, one.dtype))) for one in outputs),
            {str(name): int(size) for name, size in most.items()},
        )

    def bind(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[np.ndarray]:
        """Order a call's arguments and check them; raise `InputError` if they do not match.

        A matching array is returned unchanged, whatever its strides.
        """
        if named or len(args) != len(self.inputs):
            args = self._in_order(args, named)
        sizes: dict[str, tuple[int, str]] = {}
        # This comparison comes first because a call's time is counted in microseconds.
        arrays = [
            value
            if type(value) is np.ndarray
            and value.dtype == dtype
            and (value.shape == shape or _fits(declared, value.shape, sizes))
            else self._check(declared, value, sizes)
            for declared, (shape, dtype), value in zip(self.inputs, self._exact, args, strict=True)
        ]
        for name, most in self.most.items():
            size, origin = sizes.get(name, (0, ""))
            if size > most:
                what = f"size {name} of input {origin!r} is {size}, but the model was exported for "
                fix = "pass a smaller input, or export the model with a larger bound"
                raise self._error(f"{what}at most {most}", fix=fix)
        return arrays

    def narrowed(self, result: Any) -> Any:
        """Convert results that TVM holds in 8 bits to the model's own dtypes of 2 and 4 bits."""
        if not self._narrow:
            return result
        made = list(result) if isinstance(result, tuple) else [result]
        for place, dtype in self._narrow.items():
            made[place] = made[place].astype(dtype)
        return tuple(made) if isinstance(result, tuple) else made[0]

    @functools.cached_property
    def _narrow(self) -> dict[int, str]:
        """The outputs of 2 and 4 bits, by their positions."""
        found = enumerate(one.dtype for one in self.outputs)
        return {place: dtype for place, dtype in found if dtype in WIDENED}

    @functools.cached_property
    def _exact(self) -> list[tuple[tuple[int | str, ...] | None, np.dtype[Any] | None]]:
        """The shapes and dtypes to compare first; a shape with a name equals no array's."""
        return [(value.shape, _dtype(value.dtype)) for value in self.inputs]

    def _in_order(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        names = [value.name for value in self.inputs]
        if len(args) > len(names):
            raise self._error(f"{len(args)} inputs were passed, expected {len(names)}")
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in names:
                raise self._error(f"there is no input named {name!r}")
            if name in given:
                raise self._error(f"input {name!r} was passed twice, by position and by name")
            given[name] = value
        absent = [name for name in names if name not in given]
        if absent:
            raise self._error(f"input {absent[0]!r} is missing")
        return tuple(given[name] for name in names)

    def _check(self, declared: Input, value: Any, sizes: dict[str, tuple[int, str]]) -> np.ndarray:
        """Check one array; `sizes` maps a name to its size, and to the input that defined it."""
        try:
            # NumPy has no bfloat16, and would wrap TVM's own tensors as objects.
            if str(getattr(value, "dtype", "")) == "torch.bfloat16":
                value = tvm.runtime.from_dlpack(value)
            is_tensor = isinstance(value, tvm.runtime.Tensor)
            array = value.numpy() if is_tensor else np.asarray(value)
        except Exception as error:  # ragged lists; tensors on a GPU, or that need a gradient
            raise self._error(
                f"input {declared.name!r} cannot be read as an array: {error}",
                fix="pass a NumPy array",
            ) from error
        if str(array.dtype) != declared.dtype:
            raise self._error(
                f"input {declared.name!r} is of dtype {array.dtype}, not {declared.dtype}",
                fix=f'convert it: numpy.asarray(value, dtype="{declared.dtype}")',
            )
        fits = len(array.shape) == len(declared.shape)
        known = ""
        for size, want in zip(array.shape, declared.shape, strict=False) if fits else ():
            if isinstance(want, int):
                fits &= size == want
                continue
            # The first size that a name is matched with becomes its value.
            meant, origin = sizes.setdefault(want, (size, declared.name))
            if size != meant:
                fits = False
                known += f"; {want} is {meant}, from {origin!r}"
        if not fits:
            raise self._error(
                f"input {declared.name!r} has shape {array.shape}, "
                f"not ({', '.join(map(str, declared.shape))}){known}",
                fix="pass that shape; a model with unknown dimensions can be "
                "compiled for another one: tvmlab.load(model, shapes=...)",
            )
        return array

    def _error(self, what: str, fix: str | None = None) -> InputError:
        takes = ", ".join(map(str, self.inputs)) or "no inputs"
        return InputError(what, where=f"main({takes})", fix=fix or f"it takes {takes}")


def _fits(declared: Input, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]) -> bool:
    """Return whether a shape is the declared one; enter the sizes that its names stand for."""
    if len(shape) != len(declared.shape):
        return False
    for size, want in zip(shape, declared.shape, strict=True):
        if size == want:
            continue
        if isinstance(want, int) or sizes.setdefault(want, (size, declared.name))[0] != size:
            return False
    return True


def _sizes(shape: Any) -> tuple[int | str, ...]:
    """Convert a shape; sizes that are not numbers become strings."""
    return tuple(
        int(dim) if isinstance(dim, (int, tvm.tirx.IntImm)) else _INT64.sub(r"\1", str(dim))
        for dim in shape
    )


def _outputs(given: relax.Type, name: str) -> list[Output]:
    """List the outputs of a value of this type, named by their positions in it."""
    fields = given.fields if isinstance(given, relax.TupleType) else [given]
    found = []
    for place, one in enumerate(fields):
        here = f"{name}_{place}"
        if isinstance(one, relax.TupleType):
            found += _outputs(one, here)
        else:
            found.append(_output(one, here))
    return found


def _output(given: relax.Type, name: str) -> Output:
    """Describe a value that is not a tuple."""
    if isinstance(given, relax.TensorType):
        # If one variable stands for the whole shape, the sizes are unknown.
        known = isinstance(given.shape, relax.ShapeExpr)
        return Output(name, _sizes(given.shape.values) if known else None, str(given.dtype))
    if isinstance(given, relax.ShapeType):
        return Output(name, (given.ndim,) if given.ndim >= 0 else None, "shape")
    dtype = getattr(given, "dtype", None)  # the type of a number has one
    return Output(name, None if dtype is None else (), "object" if dtype is None else str(dtype))


def _dtype(name: str) -> np.dtype[Any] | None:
    """Return NumPy's dtype; None if it has none, or if the name means another dtype in NumPy."""
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    return dtype if str(dtype) == name else None
