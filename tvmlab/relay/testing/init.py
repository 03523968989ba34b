"""Values for the parameters of a network, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx

from ...errors import RelayError
from .. import transform
from ..module import from_expr

__all__ = ["Xavier", "create_workload"]

_VALUES = {"bias": 0.0, "beta": 0.0, "mean": 0.0, "gamma": 1.0, "var": 1.0}


class Xavier:
    """Weights at random, uniform, so that sums keep their size; the rest 0 or 1.

    Parameters
    ----------
    magnitude : float
        The square of the limit, times the mean of a weight's inputs and outputs.
    """

    def __init__(self, magnitude: float = 3.0) -> None:
        self.magnitude = magnitude

    def __call__(self, desc: str, arr: np.ndarray) -> None:
        """Fill an array, by the end of a parameter's name.

        Raises
        ------
        RelayError
            The name ends in none of weight, bias, beta, gamma, mean and var.
        """
        kind = next((kind for kind in ("weight", *_VALUES) if desc.endswith(kind)), None)
        if kind is None or (kind == "weight" and arr.ndim < 2):
            raise RelayError(
                f"there is no rule for the values of {desc!r}",
                where=f"an array of shape {arr.shape}",
                fix="end it in weight, bias, beta, gamma, mean or var, or give an initializer",
            )
        if kind != "weight":
            arr[:] = _VALUES[kind]
            return
        window = float(np.prod(arr.shape[2:]))
        # A depthwise kernel sees one channel, whatever its shape says.
        mean = window if "depthwise" in desc else window * (arr.shape[0] + arr.shape[1]) / 2
        limit = np.sqrt(self.magnitude / mean)
        arr[:] = np.random.uniform(-limit, limit, arr.shape)  # noqa: NPY002 - Relay's scripts seed it


def create_workload(
    net: relax.Function,
    initializer: Callable[[str, np.ndarray], None] | None = None,
    seed: int = 0,
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make a module of a network, and values for its parameters.

    Parameters
    ----------
    net : tvm.relax.Function
        The network; its input is named ``data``.
    initializer : callable, optional
        ``initializer(name, array)`` fills an array; `Xavier` where it is left out.
    seed : int
        For NumPy's random numbers.

    Returns
    -------
    tuple of tvm.ir.IRModule, dict of str to tvm.runtime.Tensor
        The typed module, and the values.
    """
    mod = transform.InferType()(from_expr(net))
    np.random.seed(seed)  # noqa: NPY002 - what Relay did, and scripts count on
    fill = initializer or Xavier()
    params = {}
    for param in mod["main"].params:
        shape = list(param.ty.shape)
        if param.name == "data" or not all(isinstance(size, tirx.IntImm) for size in shape):
            continue
        array = np.zeros([int(size) for size in shape], str(param.ty.dtype))
        fill(param.name, array)
        params[param.name] = tvm.runtime.tensor(array)
    return mod, params
