"""A row of long short-term memory cells, as ``relay.testing.lstm`` has it.

Relay's names for values between layers (``let %gates = ...``) are left out: they compute nothing.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from ...errors import RelayError
from ..expr import Call, Function, Tuple, TupleGetItem, Var
from ..op import function
from ..ty import TensorType, TupleType
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload", "lstm_cell"]


def _types(num_hidden: int, batch_size: int, dtype: str) -> tuple[ir.Type, ir.Type, list[ir.Type]]:
    """Give the types of a state, of two, and of a cell's four parameters."""
    state = TensorType((batch_size, num_hidden), dtype)
    weight = TensorType((4 * num_hidden, num_hidden), dtype)
    bias = TensorType((4 * num_hidden,), dtype)
    return state, TupleType([state, state]), [weight, bias, weight, bias]


def _params(prefix: str, types: list[ir.Type]) -> list[Any]:
    """Make weight and bias of the input, and of the state."""
    names = (f"{which}{prefix}_{what}" for which in ("i2h", "h2h") for what in ("weight", "bias"))
    return [Var(name, type_) for name, type_ in zip(names, types, strict=True)]


def lstm_cell(
    num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = ""
) -> relax.Function:
    """Make a cell.

    Parameters
    ----------
    num_hidden, batch_size : int
        Numbers in a state, and states in a batch.
    dtype : str
        Of everything.
    name : str
        Relay's; the cell's parameters have names without it there, too.

    Returns
    -------
    tvm.relax.Function
        Of the input, a tuple of two states, and weight and bias of the input and of the state;
        it gives the output and a tuple of two new states.
    """
    state, states_type, types = _types(num_hidden, batch_size, dtype)
    add, multiply = function("add"), function("multiply")
    sigmoid, tanh = function("sigmoid"), function("tanh")
    inputs: Any = Var("inputs", state)
    states: Any = Var("states", states_type)
    params = _params("", types)
    i2h = layers.dense_add_bias(inputs, params[0], params[1], units=4 * num_hidden)
    h2h = layers.dense_add_bias(TupleGetItem(states, 0), params[2], params[3], units=4 * num_hidden)
    gates = function("split")(add(i2h, h2h), indices_or_sections=4, axis=1)
    kept = multiply(sigmoid(gates[1]), TupleGetItem(states, 1))
    next_c = add(kept, multiply(sigmoid(gates[0]), tanh(gates[2])))
    next_h = multiply(sigmoid(gates[3]), tanh(next_c))
    body: Any = Tuple([next_h, Tuple([next_h, next_c])])
    return Function([inputs, states, *params], body, TupleType([state, states_type]))


def get_net(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> relax.Function:
    """Make the network.

    Parameters
    ----------
    iterations : int
        Cells, each with weights of its own and an input, which are all called ``data``.
    num_hidden, batch_size : int
        Numbers in a state, and states in a batch.
    dtype : str
        Of everything.

    Raises
    ------
    RelayError
        There is no cell.
    """
    if iterations < 1:
        raise RelayError(
            f"there is no row of {iterations} cells",
            where="relay.testing.lstm",
            fix="give iterations of 1 or more",
        )
    state, _, types = _types(num_hidden, batch_size, dtype)
    zeros = function("zeros")((batch_size, num_hidden), dtype)
    states: Any = Tuple([zeros, zeros])
    out: Any = None
    # Relay's order: what the first cell takes comes first.
    params: list[Any] = []
    for number in range(iterations):
        data: Any = Var("data", state)
        weights = _params(f"_{number}", types)
        params += [data, *weights]
        cell = lstm_cell(num_hidden, batch_size, dtype, f"lstm_{number}")
        call: Any = Call(cell, [data, states, *weights])
        out, states = TupleGetItem(call, 0), TupleGetItem(call, 1)
    return Function(params, out, state)


def get_workload(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))
