"""Inputs from files, pictures and a random generator; outputs to a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError, TvmlabError

if TYPE_CHECKING:
    import numpy as np

    from ..ir.signature import Input, Output, Signature


def input_arrays(
    args: argparse.Namespace, signature: Signature, fill: str | None = None
) -> list[np.ndarray]:
    """Read or fill an array for each input of a program; `fill` is the default of ``--fill``."""
    import numpy as np

    found = _read(args.inputs, signature.inputs) if args.inputs else {}
    fill = args.fill or fill
    generator = np.random.default_rng(abs(args.seed))
    for value in signature.inputs:
        if value.name not in found and not fill:
            raise InputError(
                f"there is no array for the input {value.name!r}",
                where=args.inputs or "the command line",
                fix=f"pass {value} in an .npz file with -i, or use --fill",
            )
        if value.name not in found:
            found[value.name] = _filled(value, str(fill), generator)
    return signature.bind((), found)


def _filled(value: Input, fill: str, generator: np.random.Generator) -> np.ndarray:
    """Fill an array: floats from 0 to 1, bytes of all values, other integers from 0 to 127."""
    import numpy as np

    shape = tuple(size if isinstance(size, int) else 1 for size in value.shape)
    dtype = np.dtype(value.dtype)
    if fill != "random":
        return np.full(shape, fill == "ones", dtype)
    if dtype.kind in "fV":  # V: bfloat16 and others that NumPy itself does not have
        return generator.random(shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max + 1) if dtype.itemsize == 1 else (0, 128)
    return generator.integers(low, high, shape).astype(dtype)


def _read(path: str, inputs: Sequence[Input]) -> dict[str, np.ndarray]:
    """Read arrays or a picture, by the file's extension."""
    import numpy as np

    extension = path.lower()[-4:]
    try:
        # NumPy refuses arrays of objects, because unpickling objects can run code.
        if extension == ".npz":
            with np.load(path) as file:
                return dict(file)
        array = np.load(path) if extension == ".npy" else _picture(path, inputs[0])
        return {inputs[0].name: array}
    except TvmlabError:
        raise
    except Exception as error:  # zipfile, zlib, NumPy and Pillow raise errors of many classes
        raise InputError(
            f"the file cannot be read, or it is damaged: {error}",
            where=path,
            fix='pass a .jpg or .png picture, or write numpy.savez("inputs.npz", NAME=array)',
        ) from error


def _picture(path: str, value: Input) -> np.ndarray:
    """Resize and normalize a picture for a network for ImageNet."""
    from ..models import preprocess
    from ..support.extras import need

    with need("PIL.Image", extra="models").open(path) as picture:
        array = preprocess(picture)
    channels_last = value.shape[1:] == (224, 224, 3)
    return array.transpose(0, 2, 3, 1) if channels_last else array


def name_outputs(result: Any, outputs: Sequence[Output]) -> dict[str, np.ndarray]:
    """Name the arrays that a program returned, which can be in nested tuples."""
    import numpy as np

    def flat(value: Any) -> list[np.ndarray]:
        if not isinstance(value, tuple):
            return [np.asarray(value)]
        return [one for part in value for one in flat(part)]

    return {one.name: array for one, array in zip(outputs, flat(result), strict=True)}


def save_arrays(path: str, named: dict[str, np.ndarray]) -> None:
    """Write an ``.npz`` file of exactly this name."""
    import numpy as np

    with open(path, "wb") as file:
        np.savez(file, **named)  # type: ignore[arg-type]
