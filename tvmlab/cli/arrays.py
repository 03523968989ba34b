"""Inputs from files, images and a random generator; outputs to a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError, TvmlabError
from ..models import preprocess
from ..runtime.signature import Input, Output, Signature
from ..support.extras import need


def input_arrays(
    args: argparse.Namespace, signature: Signature, fill: str | None = None
) -> list[np.ndarray]:
    """Read or fill an array for each input of a program; `fill` is the default of ``--fill``."""
    found = _read(args.inputs, signature.inputs) if args.inputs else {}
    fill = args.fill or fill
    generator = np.random.default_rng(abs(args.seed))
    for value in signature.inputs:
        if value.name not in found and not fill:
            what, where = f"there is no array for the input {value.name!r}", args.inputs
            fix = f"pass {value} in an .npz file with -i, or use --fill"
            raise InputError(what, where=where or "the command line", fix=fix)
        if value.name not in found:
            found[value.name] = _filled(value, str(fill), generator)
    return signature.bind((), found)


def _filled(value: Input, fill: str, generator: np.random.Generator) -> np.ndarray:
    """Fill an array: floats from 0 to 1, all values of bytes, other integers from 0 to 127."""
    shape = tuple(size if isinstance(size, int) else 1 for size in value.shape)
    dtype = np.dtype(value.dtype)
    if fill != "random":
        return np.full(shape, fill == "ones", dtype)
    if dtype.kind in "fV":  # V: bfloat16 and other dtypes that NumPy itself does not have
        return generator.random(shape).astype(dtype)
    ranges = {"bool": (0, 2), "int8": (-128, 128), "uint8": (0, 256)}
    return generator.integers(*ranges.get(dtype.name, (0, 128)), shape).astype(dtype)


def _read(path: str, inputs: Sequence[Input]) -> dict[str, np.ndarray]:
    """Read arrays or an image, by the file's extension."""
    extension = path.lower()[-4:]
    try:
        # NumPy rejects arrays of objects, because unpickling objects can run code.
        if extension == ".npz":
            with np.load(path) as file:
                return dict(file)
        if extension == ".npy":
            return {inputs[0].name: np.load(path)}
        with need("PIL.Image", extra="models").open(path) as picture:
            return {inputs[0].name: preprocess(picture)}
    except TvmlabError:
        raise
    except Exception as error:  # zipfile, zlib, NumPy and Pillow raise errors of many classes
        what = f"the file cannot be read, or it is damaged: {error}"
        fix = 'pass a .jpg or .png image, or write numpy.savez("inputs.npz", NAME=array)'
        raise InputError(what, where=path, fix=fix) from error


def name_outputs(result: Any, outputs: Sequence[Output]) -> dict[str, np.ndarray]:
    """Name the arrays that a program returned, which can be in nested tuples."""

    def flat(value: Any) -> list[np.ndarray]:
        if not isinstance(value, tuple):
            return [np.asarray(value)]
        return [one for part in value for one in flat(part)]

    return {one.name: array for one, array in zip(outputs, flat(result), strict=True)}


def save_arrays(path: str, named: dict[str, np.ndarray]) -> None:
    """Write an ``.npz`` file of exactly this name."""
    with open(path, "wb") as file:
        np.savez(file, **named)  # type: ignore[arg-type]
