"""Inputs from files, pictures and a random generator; outputs to a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..ir.signature import Input, Output

    Array = npt.NDArray[Any]

__all__ = ["add_inputs", "input_arrays", "name_outputs", "save_arrays"]


def add_inputs(parser: argparse.ArgumentParser, fill: str | None = None) -> None:
    """Add ``-i``, ``--fill`` and ``--seed``."""
    parser.add_argument(
        "-i",
        "--inputs",
        metavar="FILE",
        help=".npz with an array for each input's name, .npy for the only input, or a picture",
    )
    parser.add_argument(
        "--fill",
        "--fill-mode",
        choices=("random", "zeros", "ones"),
        default=fill,
        help="how to fill inputs that FILE does not have"
        + (" (%(default)s)" if fill else "; without it they are an error")
        + "; a size that is only known at run time is 1",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of --fill random (%(default)s)"
    )


def input_arrays(args: argparse.Namespace, inputs: Sequence[Input]) -> list[Array]:
    """Read or fill an array for each input of a program."""
    import numpy as np

    found = _read(args.inputs, inputs) if args.inputs else {}
    generator = np.random.default_rng(abs(args.seed))
    for value in inputs:
        if value.name in found:
            continue
        if not args.fill:
            raise InputError(
                f"there is no array for the input {value.name!r}",
                where=args.inputs or "the command line",
                fix=f"pass {value} in an .npz file with -i, or use --fill",
            )
        found[value.name] = _filled(value, args.fill, generator)
    return [found[value.name] for value in inputs]


def _filled(value: Input, fill: str, generator: np.random.Generator) -> Array:
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


def _read(path: str, inputs: Sequence[Input]) -> dict[str, Array]:
    """Read arrays or a picture, by the file's extension."""
    import numpy as np

    if not path.lower().endswith((".npz", ".npy")):
        return _read_picture(path, inputs)
    try:
        # An array of objects is refused, because unpickling objects can run code.
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            loaded = {_only(path, inputs).name: loaded}
        found = {name: _native(array) for name, array in loaded.items()}
    except InputError:
        raise
    except (
        Exception
    ) as error:  # zipfile, zlib and NumPy's parser of headers have errors of their own
        raise InputError(
            f"this is not a file of NumPy arrays, or it is damaged: {error}",
            where=path,
            fix='write it with numpy.savez("inputs.npz", NAME=array)',
        ) from error
    names = [value.name for value in inputs]
    for name in found:
        if name not in names:
            raise InputError(
                f"there is no input {name!r}",
                where=path,
                fix=f"name the arrays as the inputs: {', '.join(names)}",
            )
    return found


def _native(array: Array) -> Array:
    """Convert an array to this machine's byte order."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _only(path: str, inputs: Sequence[Input]) -> Input:
    """Return the program's only input."""
    if len(inputs) == 1:
        return inputs[0]
    raise InputError(
        f"the file has one array, but the program takes {len(inputs)}",
        where=path,
        fix="pass an .npz file with " + ", ".join(map(str, inputs)),
    )


def _read_picture(path: str, inputs: Sequence[Input]) -> dict[str, Array]:
    """Resize and normalize a picture for a network for ImageNet."""
    from ..models import preprocess
    from ..support.extras import need

    value = _only(path, inputs)
    channels_last = value.shape[1:] == (224, 224, 3)
    if value.dtype != "float32" or not (channels_last or value.shape[1:] == (3, 224, 224)):
        raise InputError(
            "a picture needs an input of float32 [n, 3, 224, 224] or [n, 224, 224, 3]",
            where=f"{path}, for {value}",
            fix=f'save an array instead: numpy.savez("inputs.npz", {value.name}=array)',
        )
    Image = need("PIL.Image", extra="models")
    try:
        with Image.open(path) as picture:
            array = preprocess(picture)
    except InputError:
        raise
    except Exception as error:  # Pillow's readers raise struct's and Python's errors as well
        raise InputError(
            f"this is not a picture, or it is damaged: {error}",
            where=path,
            fix="pass a .jpg or .png file, or arrays in an .npz file",
        ) from error
    return {value.name: array.transpose(0, 2, 3, 1) if channels_last else array}


def name_outputs(result: Any, outputs: Sequence[Output]) -> dict[str, Array]:
    """Name the arrays that a program returned, by its signature or else ``output_0`` and so on."""
    arrays = _flat(result)
    if len(arrays) == len(outputs):
        return {output.name: array for output, array in zip(outputs, arrays, strict=True)}
    return {f"output_{place}": array for place, array in enumerate(arrays)}


def _flat(result: Any) -> list[Array]:
    """List the arrays in nested tuples."""
    import numpy as np

    if isinstance(result, tuple):
        return [array for part in result for array in _flat(part)]
    return [np.asarray(result)]


def save_arrays(path: str, named: dict[str, Array]) -> None:
    """Write an ``.npz`` file; `numpy.savez` refuses an array with the name ``file``."""
    import zipfile

    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in named.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
