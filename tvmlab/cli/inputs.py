"""Arrays from files, pictures and a random generator; arrays to a file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .._telling import telling
from ..errors import InputError
from . import arguments

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..signature import Input, Output

    Array = npt.NDArray[Any]

__all__ = ["add_inputs", "arrays", "expect_file", "named", "save"]

FILLS = ("random", "zeros", "ones")


def add_inputs(parser: argparse.ArgumentParser, fill: str | None = None) -> None:
    """Add ``-i``, ``--fill`` and ``--seed``; `arrays` reads them."""
    parser.add_argument(
        "-i",
        "--inputs",
        metavar="FILE",
        help=".npz with an array for each input's name, .npy for the only input, or a picture",
    )
    parser.add_argument(
        "--fill",
        "--fill-mode",
        choices=FILLS,
        default=fill,
        help="inputs that FILE does not have"
        + (" (%(default)s)" if fill else ": an error if left out")
        + "; sizes known when it runs are 1",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of what is random (%(default)s)"
    )


def expect_file(told: argparse.Namespace) -> None:
    """Say that the file of the inputs is not there: a command asks before anything long.

    Raises
    ------
    InputError
        There is no such file.
    """
    if told.inputs and not os.path.exists(told.inputs):
        raise InputError("there is no such file", where=told.inputs, fix="check the path")


def arrays(told: argparse.Namespace, inputs: Sequence[Input]) -> list[Array]:
    """Get an array for each input.

    Parameters
    ----------
    told : argparse.Namespace
        With what `add_inputs` added.
    inputs : sequence of Input
        What the program takes.

    Returns
    -------
    list of ndarray
        In the order of the inputs.

    Raises
    ------
    InputError
        The file is not there, cannot be read or is none of these, an input has no array, or no
        number can be random in its dtype.
    """
    expect_file(told)
    given = _read(told.inputs, inputs) if told.inputs else {}
    absent = [value for value in inputs if value.name not in given]
    if absent and not told.fill:
        raise InputError(
            f"there is no array for the input {absent[0].name!r}",
            where=told.inputs or "the command line",
            fix=f"give {absent[0]} in an .npz file with -i, or let --fill make numbers up",
        )
    import numpy as np

    generator = np.random.default_rng(abs(told.seed))
    made = {value.name: _filled(value, told.fill, generator) for value in absent}
    return [(given | made)[value.name] for value in inputs]


def _filled(value: Input, fill: str, generator: np.random.Generator) -> Array:
    """Make an array up: floats from 0 to 1, bytes of all values, other integers below 128."""
    import numpy as np

    shape = tuple(size if isinstance(size, int) else 1 for size in value.shape)
    try:
        dtype = np.dtype(value.dtype)
    except TypeError as error:
        raise InputError(
            f"NumPy has no {value.dtype}, so no array of it can be made up or read",
            where=str(value),
            fix="call the program from Python, with a tensor of TVM's",
        ) from error
    if fill != "random":
        return np.full(shape, fill == "ones", dtype)
    if dtype.kind in "fV":  # V: those that NumPy has not itself, such as bfloat16
        return generator.random(shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max + 1) if dtype.itemsize == 1 else (0, 128)
    return generator.integers(low, high, shape).astype(dtype)


def _read(path: str, inputs: Sequence[Input]) -> dict[str, Array]:
    """Read a file by its ending."""
    import numpy as np

    if not path.lower().endswith((".npz", ".npy")):
        return _picture(path, inputs)
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {_only(path, inputs).name: _native(found)}
        with found:
            return {name: _native(found[name]) for name in _known(found.files, path, inputs)}
    except InputError:
        raise
    except Exception as error:  # of the readers of ZIP, of zlib and of Python's own words in it
        raise InputError(
            f"this is no file of NumPy's arrays, or it is damaged: {telling(error)}",
            where=path,
            fix='write it with numpy.savez("inputs.npz", NAME=array); objects are not read, for '
            "they can run code",
        ) from error


def _native(array: Array) -> Array:
    """Turn bytes in another machine's order around; the numbers stay."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _known(names: Sequence[str], path: str, inputs: Sequence[Input]) -> Sequence[str]:
    known = [value.name for value in inputs]
    for name in names:
        if name not in known:
            raise InputError(
                f"there is no input {name!r}",
                where=path,
                fix=f"its arrays are to have the inputs' names: {', '.join(known)}",
            )
    return names


def _only(path: str, inputs: Sequence[Input]) -> Input:
    if len(inputs) == 1:
        return inputs[0]
    raise InputError(
        f"one array was given, and the program takes {len(inputs)}",
        where=path,
        fix="give an .npz file with " + ", ".join(map(str, inputs)),
    )


def _picture(path: str, inputs: Sequence[Input]) -> dict[str, Array]:
    """Prepare a photograph as ImageNet's networks take it."""
    from ..extras import need
    from ..models import preprocess

    value = _only(path, inputs)
    channels_last = value.shape[1:] == (224, 224, 3)
    if value.dtype != "float32" or not (channels_last or value.shape[1:] == (3, 224, 224)):
        raise InputError(
            "a picture is for networks of float32 [n, 3, 224, 224] or [n, 224, 224, 3]",
            where=f"{path}, for {value}",
            fix=f"make the array as the network wants it, and save it: "
            f'numpy.savez("inputs.npz", {value.name}=array)',
        )
    Image = need("PIL.Image", extra="models")
    try:
        with Image.open(path) as picture:
            array = preprocess(picture)
    except InputError as error:
        raise InputError(error.what, where=path, fix=error.fix) from error
    except Exception as error:  # of Pillow's readers, and of struct and Python in them
        raise InputError(
            f"this is no picture, or it is damaged: {telling(error)}",
            where=path,
            fix="give a .jpg or .png file, or arrays in an .npz file",
        ) from error
    return {value.name: array.transpose(0, 2, 3, 1) if channels_last else array}


def named(result: Any, outputs: Sequence[Output]) -> dict[str, Array]:
    """Name what a program returned.

    Parameters
    ----------
    result : numpy.ndarray, int, float or tuple of these
        What a call gave.
    outputs : sequence of Output
        What the program says that it gives.

    Returns
    -------
    dict of str to ndarray
        By the outputs' names; by their places, where a program of which little is known gave
        another number of them.
    """
    found = dict(_placed(result, "output"))
    if len(found) != len(outputs):
        return found
    return {one.name: array for one, array in zip(outputs, found.values(), strict=True)}


def _placed(result: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Name each array by its place: ``output_0``, and of a tuple in a tuple ``output_0_1``."""
    import numpy as np

    for place, one in enumerate(result if isinstance(result, tuple) else (result,)):
        if isinstance(one, tuple):
            yield from _placed(one, f"{name}_{place}")
        else:
            yield f"{name}_{place}", np.asarray(one)


def save(path: str, named: dict[str, Array]) -> None:
    """Write arrays to an ``.npz`` file, whole or not at all.

    Raises
    ------
    InputError
        It cannot be written.
    """
    import zipfile

    import numpy as np

    from .._files import whole

    try:
        with whole(path) as part, zipfile.ZipFile(part, "w") as archive:
            # As numpy.savez does, which takes no array by the name of one of its own parameters.
            for name, array in named.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise arguments.unwritten(path, error) from error
