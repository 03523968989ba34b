"""Recurrent layers: RNN, LSTM and GRU, with one matrix product for the inputs of all time steps.

The steps are unrolled. All steps have the same operators and shapes, so TVM compiles the kernels of
one step and calls them for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from .onnx_graphs import Attributes, GraphImporter, Inputs, const, sizes_of, unstacked

__all__ = ["RECURRENT"]

_ACTIVATIONS: dict[bytes, Callable[[Any], Any]] = {
    b"relu": op.nn.relu,
    b"sigmoid": op.sigmoid,
    b"softplus": op.nn.softplus,
    b"softsign": lambda x: op.divide(x, op.add(op.abs(x), const(np.array(1, str(x.ty.dtype))))),
    b"tanh": op.tanh,
}
_DEFAULTS = {
    "RNN": [b"Tanh"],
    "GRU": [b"Sigmoid", b"Tanh"],
    "LSTM": [b"Sigmoid", b"Tanh", b"Tanh"],
}

State = list[Any]
Step = Callable[[Any, State], State]


class _Layer:
    """One direction of a layer: its weights as ONNX orders them, and its step."""

    def __init__(self, importer: GraphImporter, kind: str, attributes: Attributes, place: int):
        self.emit = importer.bb.emit
        names = attributes.get("activations", _DEFAULTS[kind] * 2)
        count = len(_DEFAULTS[kind])
        chosen = [name.lower() for name in names[place * count : (place + 1) * count]]
        known = len(chosen) == count and set(chosen) <= set(_ACTIVATIONS)
        if not known or attributes.get("input_forget"):
            why = f"with input_forget or activations {b', '.join(chosen).decode()}"
            raise importer.unsupported(why, "export the layer with its default activations")
        self.functions = [_ACTIVATIONS[name] for name in chosen]
        self.limit = attributes.get("clip")

    def active(self, which: int, x: Any) -> Any:
        """Apply an activation to a gate, after clipping the gate."""
        x = self.emit(x)
        if self.limit is not None:
            x = self.emit(op.clip(x, -self.limit, self.limit))
        return self.emit(self.functions[which](x))

    def split(self, x: Any, parts: int) -> list[Any]:
        """Split the gates of a tensor."""
        made = self.emit(op.split(x, parts, -1))
        return [self.emit(relax.TupleGetItem(made, i)) for i in range(parts)]

    def step(self, kind: str, r: Any, bias: Any, peephole: Any, late: bool) -> Step:
        """Return the function of a step's input part and state; `r` is transposed."""

        def rnn(x: Any, state: State) -> State:
            return [self.active(0, op.add(x, op.matmul(state[0], r)))]

        def lstm(x: Any, state: State) -> State:
            h, c = state
            i, o, f, g = self.split(self.emit(op.add(x, op.matmul(h, r))), 4)
            if peephole is not None:
                pi, po, pf = self.split(peephole, 3)
                i, f = op.add(i, op.multiply(pi, c)), op.add(f, op.multiply(pf, c))
            i, f, g = self.active(0, i), self.active(0, f), self.active(1, g)
            c = self.emit(op.add(op.multiply(f, c), op.multiply(i, g)))
            o = self.active(0, o if peephole is None else op.add(o, op.multiply(po, c)))
            return [self.emit(op.multiply(o, self.emit(self.functions[2](c)))), c]

        def gru(x: Any, state: State) -> State:
            h = state[0]
            xz, xr, xh = self.split(x, 3)
            if late:
                parts = self.split(self.emit(op.add(op.matmul(h, r), bias)), 3)
            else:
                gates, last = self.split_weights(r)
                parts = self.split(self.emit(op.matmul(h, gates)), 2)
            z, reset = (
                self.active(0, op.add(a, b)) for a, b in zip((xz, xr), parts[:2], strict=True)
            )
            if late:
                new = op.multiply(reset, parts[2])
            else:
                new = op.matmul(self.emit(op.multiply(reset, h)), last)
            new = self.active(1, op.add(xh, new))
            return [self.emit(op.add(new, op.multiply(z, op.subtract(h, new))))]

        return {"RNN": rnn, "LSTM": lstm, "GRU": gru}[kind]

    def split_weights(self, r: Any) -> tuple[Any, Any]:
        """Return the weights of GRU's first two gates, and of its last."""
        gates = self.split(r, 3)
        return self.emit(op.concat(gates[:2], 1)), gates[2]


def _recurrent(kind: str) -> Callable[..., Any]:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]

    def convert(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
        emit = importer.bb.emit
        x, w, r, b, lengths, *initial = inputs[0:8]
        peepholes = initial.pop() if kind == "LSTM" else None
        initial = initial[: 2 if kind == "LSTM" else 1]
        batch_first = attributes.get("layout", 0)
        if batch_first:
            x = emit(op.permute_dims(x, [1, 0, 2]))
            initial = [h if h is None else emit(op.permute_dims(h, [1, 0, 2])) for h in initial]
        steps, batch, features = importer.known_sizes(x)
        hidden = importer.known_sizes(r)[-1]
        dtype = str(x.ty.dtype)
        direction = attributes.get("direction", b"forward")
        late = bool(attributes.get("linear_before_reset", 0))
        count = 2 if direction == b"bidirectional" else 1
        wanted = {  # the operands that `part` takes apart, with their sizes
            "W": (w, [count, gates * attributes.get("hidden_size", hidden), features]),
            "R": (r, [count, gates * hidden, hidden]),
            "B": (b, [count, 2 * gates * hidden]),
            "P": (peepholes, [count, 3 * hidden]),
            **{f"initial state {n}": (h, [count, batch, hidden]) for n, h in enumerate(initial)},
        }
        for name, (value, sizes) in wanted.items():
            if value is not None and sizes_of(value) != sizes:
                why = f"with {name} of shape {sizes_of(value)}, not {sizes}"
                raise importer.unsupported(why, "export the layer again")
        valid = None if lengths is None else _valid(importer, lengths, steps, batch)
        outputs: list[Any] = []
        finals: list[State] = []
        for place in range(count):
            layer = _Layer(importer, kind, attributes, place)

            def part(value: Any, at: int = place) -> Any:
                return emit(op.squeeze(emit(op.strided_slice(value, [0], [at], [at + 1])), [0]))

            wx, wr = (emit(op.permute_dims(part(v))) for v in (w, r))
            flat = emit(op.matmul(emit(op.reshape(x, [steps * batch, features])), wx))
            recurrent_bias = None
            if b is not None:
                bias_w, bias_r = layer.split(part(b), 2)
                flat = emit(op.add(flat, bias_w))
                if kind == "GRU" and late:
                    recurrent_bias = bias_r
                else:
                    flat = emit(op.add(flat, bias_r))
            elif late:
                recurrent_bias = const(np.zeros(gates * hidden, dtype))
            projected = emit(op.reshape(flat, [steps, batch, gates * hidden]))
            peephole = None if peepholes is None else part(peepholes)
            step = layer.step(kind, wr, recurrent_bias, peephole, late)
            zero = const(np.zeros((batch, hidden), dtype))
            state = [zero if h is None else part(h) for h in initial]
            order = list(enumerate(unstacked(importer, projected, 0)))
            backward = direction == b"reverse" or place == 1
            shown: list[Any] = []
            for t, value in order[::-1] if backward else order:
                made = step(value, state)
                shown.append(made[0])
                if valid is not None:
                    shown[-1] = emit(op.where(valid[t], made[0], zero))
                    pairs = zip(made, state, strict=True)
                    made = [emit(op.where(valid[t], new, old)) for new, old in pairs]
                state = made
            outputs.append(emit(op.stack(shown[::-1] if backward else shown, 0)))
            finals.append(state)
        y = emit(op.stack(outputs, 1))
        last = [emit(op.stack(list(one), 0)) for one in zip(*finals, strict=True)]
        if batch_first:
            y = emit(op.permute_dims(y, [2, 0, 1, 3]))
            last = [emit(op.permute_dims(one, [1, 0, 2])) for one in last]
        return relax.Tuple([y, *last])

    return convert


def _valid(importer: GraphImporter, lengths: Any, steps: int, batch: int) -> Sequence[Any]:
    """Return for each step the batch's sequences that have not ended."""
    emit, known = importer.bb.emit, importer.value(lengths)
    if known is not None and not ((known >= 0) & (known <= steps)).all():
        why = f"with lengths {known.tolist()} of sequences of {steps} steps"
        raise importer.unsupported(why, "correct the lengths")
    column = emit(op.reshape(op.astype(lengths, "int64"), [batch, 1]))
    return [emit(op.less(const(np.int64(t)), column)) for t in range(steps)]


#: The converters of recurrent layers.
RECURRENT = {kind: _recurrent(kind) for kind in _DEFAULTS}
