"""The checks of notebook 11, Recipes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

import numpy as np
import tvm
from tvm import relax

from ... import models, relay
from ...compiler import compile
from ...frontend import load
from ...runtime.executable import Executable
from .judge import Wrong, call, exercise, same_values

DIGITS = (64, 64, 3, 3)  # the largest weights in the network of the digits
PICTURES = [*range(19), 25]  # the last is nowhere as bright as a scan can be
# The larger of the two below; the other has more channels, is the last, and has the larger sum.
FIRST, SECOND = (2, 4, 9, 9), (32, 2, 1, 1)


@exercise
def check_largest(largest: Callable[[tvm.IRModule], Iterable[int]]) -> str:
    """Check a function that finds the largest weights of a module's convolutions.

    Parameters
    ----------
    largest : callable
        Takes a module; returns a shape of four sizes.
    """
    x = relay.var("x", shape=(1, 4, 9, 9))
    first, second = (relay.const(np.ones(shape, "float32")) for shape in (FIRST, SECOND))
    product = relax.op.nn.conv2d(relax.op.nn.conv2d(x, first), second)
    two = relay.IRModule.from_expr(relay.Function([x], product))
    found, other = (tuple(call(largest, mod)) for mod in (load(models.digits_resnet()), two))
    if math.prod(found) < math.prod(DIGITS):
        raise Wrong(f"the network of the digits has larger weights than {found}")
    if found != DIGITS:
        raise Wrong(f"the network of the digits has no convolution with weights of {found}")
    if other != FIRST:
        raise Wrong(
            f"of weights of the shapes {FIRST} and {SECOND} it gives {other}: count the numbers, "
            "which is the product of the sizes"
        )
    return f"{found} {other}"


@exercise
def check_as_input(
    as_input: Callable[[np.ndarray], np.ndarray],
    *,
    pixels: int,
    scanned: tuple[int, int],
    trained: tuple[int, int],
) -> str:
    """Check a function that makes an input of the digits' network of a scanned picture.

    Parameters
    ----------
    as_input : callable
        Takes a picture, uint8 of the shape (pixels, pixels); returns what the network takes.
    pixels : int
        Of a side.
    scanned, trained : tuple of int
        The lowest and the highest number, zero the lowest of both: of a scanned picture, and of
        those that the network was trained on.
    """
    run, digits = _network(), models.digits()
    right = 0
    for wanted, answer in zip(digits.x_test[PICTURES], digits.y_test[PICTURES], strict=True):
        scan = (wanted.reshape(pixels, pixels) * scanned[1] / trained[1]).astype("uint8")
        data = call(as_input, scan)
        scores = run(data)
        same_values(data, wanted[np.newaxis], "the input")
        right += int(np.argmax(scores) == answer)
    return f"{right} of {len(PICTURES)} are read"


@functools.cache
def _network() -> Executable:
    """Compile the network once: the check is called for every try."""
    return compile(load(models.digits_resnet()))
