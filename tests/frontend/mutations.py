"""Damage models at random, and load, compile and run each: ``python mutations.py KIND NUMBER...``.

The number of a mutation is its seed. The process writes a line for each phase of each mutation, so
that its parent knows where it died, if it did.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import os
import random
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.update(TVM_NUM_THREADS="1", TVM_BIND_THREADS="0", OMP_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import onnx
import onnxruntime
import torch
from onnx.numpy_helper import from_array, to_array
from torch import nn
from torch.utils import _pytree as pytree

import tvmlab
from tests.indices.modules import Program
from tests.oracles.models import array, as_tuple
from tvmlab.errors import TvmlabError
from tvmlab.frontend.onnx_graphs import nodes

LIMIT, MEMORY = 60, 8 << 30  # seconds of processor time for a mutation, and bytes
NUMBERS = (-1, 0, 1, 2, 3, 7, -2, 100, -(2**31), 2**31 - 1, 2**40, 2**62)
REALS = (0.0, -1.0, 1e30, float("nan"), float("inf"))
TEXTS = ("", "other", "ai.onnx", "com.microsoft", "Relu", "Add", "\xff/\0")
DTYPES = torch.float16, torch.float64, torch.int32, torch.int64, torch.bool, torch.uint8
VALUES: dict[type, Any] = {int: NUMBERS, float: REALS, str: TEXTS, torch.dtype: DTYPES}
VALUES |= {bool: (False, True), bytes: (b"", b"text", bytes(4), bytes(64))}
# Declarations without values become weights of random numbers.
MODELS = (
    """<ir_version: 8, opset_import: ["": 17]> quantized (float[1,3,8,8] x) => (float[1,5] y)
    <int8[4,3,3,3] k, float[4] ks = {0.015625, 0.03125, 0.0625, 0.125}, int8[4] kz = {0, 0, 0, 0},
     float qs = {0.0625}, uint8 qz = {120}, float[4] bias = {0.5, -0.25, 1, 0}, float[5,36] w,
     float[5] v> {
        q = QuantizeLinear(x, qs, qz)      d = DequantizeLinear(q, qs, qz)
        kd = DequantizeLinear<axis = 0>(k, ks, kz)
        c = Conv<pads = [1, 1, 1, 1], strides = [2, 2], group = 1>(d, kd, bias)
        r = Relu(c)    rq = QuantizeLinear(r, qs, qz)    rd = DequantizeLinear(rq, qs, qz)
        p = MaxPool<kernel_shape = [2, 2], ceil_mode = 0>(rd)
        pq = QuantizeLinear(p, qs, qz)     pd = DequantizeLinear(pq, qs, qz)
        f = Flatten<axis = 1>(pd)          y = Gemm<alpha = 0.5, transB = 1>(f, w, v)
    }""",
    """<ir_version: 8, opset_import: ["": 17]> recurrent (float[2,2,3] x) => (float[2,1,2,3] y,
    float[1,2,4] z) <float[1,16,3] w, float[1,16,4] r, float[1,32] b, int32[2] lengths = {2, 1},
     int64[3] shape = {0, 2, -1}, float[1,9,4] u, float[1,9,3] s, float[1,18] c, float[1,2,3] h> {
        a, last, z = LSTM<hidden_size = 4, direction = "forward">(x, w, r, b, lengths)
        t = Transpose<perm = [0, 2, 1, 3]>(a)        f = Reshape<allowzero = 0>(t, shape)
        y = GRU<hidden_size = 3, direction = "reverse", linear_before_reset = 1,
                activations = ["Sigmoid", "Tanh"]>(f, u, s, c, , h)
    }""",
    """<ir_version: 8, opset_import: ["": 17]> flow (float[3,4] x, bool c) => (float[3,4] y)
    <int64 trips = {3}, bool yes = {1}, int64[1] axes = {0}, float half = {0.5}> {
        last, all = Loop<body = body (int64 i, bool go, float[3,4] s) =>
            (bool on, float[3,4] s2, float[3,4] out) {
                on = Identity(go)      s2 = Mul(s, half)
                f = Cast<to = 1>(i)    out = Add(s2, f) }>(trips, yes, x)
        z = If<then_branch = no () => (float[3,4] n) { n = Neg(last) },
               else_branch = so () => (float[3,4] t) { t = Tanh(last) }>(c)
        sum = ReduceSum<keepdims = 0>(all, axes)     y = Where(c, sum, z)
    }""",
    """<ir_version: 9, opset_import: ["": 20]> attention (float[1,5,8] x) => (float[1,5,8] y)
    <float[8] s, float[8] b, float[8,24] w, int64[3] sizes = {8, 8, 8}, float half = {0.5},
     int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}> {
        n = LayerNormalization<axis = -1, epsilon = 0.001>(x, s, b)
        m = MatMul(n, w)            q, k, v = Split<axis = 2>(m, sizes)
        qr = Reshape(q, heads)      qt = Transpose<perm = [0, 2, 1, 3]>(qr)
        kr = Reshape(k, heads)      kt = Transpose<perm = [0, 2, 3, 1]>(kr)
        vr = Reshape(v, heads)      vt = Transpose<perm = [0, 2, 1, 3]>(vr)
        score = MatMul(qt, kt)      scaled = Mul(score, half)
        soft = Softmax<axis = -1>(scaled)            mix = MatMul(soft, vt)
        back = Transpose<perm = [0, 2, 1, 3]>(mix)   one = Reshape(back, flat)
        g = Gelu<approximate = "tanh">(one)          y = Add(g, x)
    }""",
    """<ir_version: 8, opset_import: ["": 18]> sizes (float[1,2,4,5] x) =>
    (float[1,1,6,8] y, float[1,1,6,2] sums, float[1,6,6,4] h, float z)
    <float[4] scales = {1, 1, 1.5, 2}, int64[8] pads = {0, 0, 1, 0, 0, 0, 2, 1}, float by = {0.5},
     float[2,4,3,3] k, int64[4] sizes = {1, 1, 6, 6}, int64[1] last = {3}, int64[1] first = {1},
     int64[1] two = {2}, int64[3] at = {0, -1, 2}, int64[1] four = {4}, float low = {-1},
     float high = {1.5}, float[2] pair = {0, 1}> {
        r = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(x, , scales)
        p = Pad<mode = "constant">(r, pads, by)
        t = ConvTranspose<strides = [2, 2], pads = [1, 1, 0, 0], group = 1>(p, k)
        d = DepthToSpace<blocksize = 2, mode = "DCR">(t)
        n = Resize<mode = "nearest", nearest_mode = "floor">(d, , , sizes)
        m = ReduceMean<keepdims = 1>(n, last)        z = ReduceMax<keepdims = 0>(t)
        a = ArgMax<axis = 1, keepdims = 0, select_last_index = 0>(n)
        best, place = TopK<axis = -1, largest = 1, sorted = 1>(n, two)
        sums = CumSum<exclusive = 1, reverse = 1>(best, last)
        g = Gather<axis = 3>(n, at)                  s = Slice(n, two, four, last, first)
        e = GatherElements<axis = -1>(n, place)      c = Concat<axis = 3>(g, s, m, e)
        y = Clip(c, low, high)                       h = OneHot<axis = -1>(a, four, pair)
    }""",
)


def model(number: int) -> Any:
    proto = onnx.parser.parse_model(MODELS[number % len(MODELS)])
    for one in proto.graph.value_info:
        kind = one.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        content = array(*(size.dim_value for size in kind.shape.dim)) * (
            50 if dtype == "int8" else 1
        )
        proto.graph.initializer.append(from_array(content.astype(dtype), one.name))
    del proto.graph.value_info[:]
    for tensor in proto.graph.initializer:  # store all as raw data
        tensor.CopyFrom(from_array(to_array(tensor), tensor.name))
    return proto


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Truncate a file, or flip some of its bits."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 2, 8])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return rng.choice([content[: rng.randrange(len(content))], bytes(changed)])


def fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the fields of a message and of the messages in it that are not empty."""
    for field, content in message.ListFields():
        yield message, field
        if field.message_type:
            for part in content if field.is_repeated else [content]:
                yield from fields(part)


def change_field(proto: Any, rng: random.Random) -> None:
    """Drop, repeat, exchange or replace something in a model."""
    found: dict[Any, list[Any]] = {}
    for message, field in fields(proto):
        found.setdefault((message.DESCRIPTOR.name, field.name), []).append((message, field))
    names = [x for one, _ in found["NodeProto", "output"] for x in (*one.input, *one.output)]
    message, field = rng.choice(found[rng.choice(sorted(found))])
    old, how = getattr(message, field.name), rng.choice(["drop", "repeat", "move", "new", "new"])
    items = copy.deepcopy(list(old)) if field.is_repeated else [old]
    at = rng.randrange(len(items))
    if how == "move":
        items.insert(rng.randrange(len(items)), items.pop(at))
    elif how == "new" and not field.message_type:
        kinds = [one.number for one in field.enum_type.values] if field.enum_type else []
        kind = type(items[at])
        items[at] = rng.choice(kinds or [*VALUES[kind], *(names if kind is str else [])])
    else:
        items[at : at + 1] = [items[at]] * 2 * (how == "repeat")
    message.ClearField(field.name)
    with contextlib.suppress(ValueError):  # a number of more than 32 bits
        if field.is_repeated:
            getattr(message, field.name).extend(items)
        elif items and not field.message_type:
            setattr(message, field.name, items[0])


def change_weight(proto: Any, rng: random.Random) -> None:
    """Change a number, the dtype or the shape of a weight, so that it stays a tensor."""
    one = rng.choice(proto.graph.initializer)
    content, how = to_array(one).copy(), rng.choice(["number", "number", "dtype", "shape"])
    if how == "shape":
        shapes = [content[None], content.T, content.ravel(), content.ravel()[:1].reshape(())]
        content = rng.choice([*shapes, *([content.repeat(2, 0), content[:1]] if one.dims else [])])
    elif how == "dtype":
        content = content.astype(rng.choice(["float16", "float64", "int32", "bool", "uint64"]))
    else:  # no NaN, because padding and recurrent layers hide it in some runtimes
        new = np.array(rng.choice(NUMBERS if content.dtype.kind in "iu" else REALS[:3]))
        content.flat[rng.randrange(content.size)] = new.astype(content.dtype)
    one.CopyFrom(from_array(content.copy("C"), one.name))


def change_attribute(proto: Any, rng: random.Random) -> None:
    """Give an attribute a value of another type."""
    old = rng.choice(rng.choice([one for one in nodes(proto.graph) if one.attribute]).attribute)
    values: list[Any] = [1, 1.5, "text", [1, 2], [0.5], ["text"], from_array(np.ones(2), "t")]
    old.CopyFrom(onnx.helper.make_attribute(old.name, rng.choice(values)))


def change_input(proto: Any, rng: random.Random) -> None:
    """Declare an input as a sequence, as strings or as nothing, or add it."""
    declare = onnx.helper.make_tensor_sequence_value_info, onnx.helper.make_tensor_value_info
    one = rng.choice(proto.graph.input)
    name, kind = rng.choice([one.name, "other", ""]), rng.choice([1, 8, 7, 11])
    made = rng.choice([*(how(name, kind, [2]) for how in declare), onnx.ValueInfoProto(name=name)])
    rng.choice([one.CopyFrom, lambda new: proto.graph.input.append(new)])(made)


def mutated_model(number: int, rng: random.Random) -> Any:
    proto = model(number)
    changes = [change_field] * 4 + [change_weight] * 2 + [change_attribute, change_input]
    if (change := rng.choice([*changes, None])) is None:
        return damaged(proto.SerializeToString(), rng)
    change(proto, rng)
    return proto


def indices(x: Any) -> Any:
    best, place = x.topk(2, -1)
    parts = torch.cat([x[:, 1:4:2], x.amax((0, 2), True).expand(2, 4, 6)], 1)
    sums = parts.cumsum(1).clamp(-1, 2)
    return x.gather(2, place), sums, best.softmax(1), x.argmax(1), x.var(2)


@functools.cache
def saved(number: int) -> bytes:
    """Return the file of an exported program."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    sizing = nn.ConstantPad2d(1, 0.5), nn.ConvTranspose2d(2, 4, 3, 2, 1), nn.PixelShuffle(2)
    larger = nn.Upsample(scale_factor=1.5, mode="bilinear")
    module, x = (
        (nn.Sequential(*layers, nn.Linear(16, 5)), torch.ones(1, 3, 8, 8)),
        (nn.Sequential(nn.Embedding(5, 4), nn.GRU(4, 3)), torch.ones(2, 1, dtype=torch.int64)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.ones(1, 5, 8)),
        (Program(indices), torch.ones(2, 4, 6)),
        (nn.Sequential(larger, *sizing, nn.AvgPool2d(3, 2, 1)), torch.ones(1, 2, 4, 5)),
    )[number]
    torch.export.save(torch.export.export(module.eval(), (x,)), file := io.BytesIO())
    return file.getvalue()


def change_program(program: Any, rng: random.Random) -> None:
    """Change an argument or an operator, or what a program declares or stores."""
    everything, signature, state = (
        [*program.graph.nodes],
        program.graph_signature,
        program.state_dict,
    )
    calls = [node for node in everything if node.op == "call_function"]
    node, kind = rng.choice([*calls, everything[-1], everything[-1]]), rng.choice(DTYPES)
    how = rng.choice(["argument"] * 4 + ["target", "type", "state", "signature"])
    leaves, tree = pytree.tree_flatten((node.args, node.kwargs))
    if how == "argument" and leaves:
        at = rng.randrange(len(leaves))
        leaves[at] = rng.choice(VALUES.get(type(leaves[at])) or [*everything, None, 1, "text"])
        node.args, node.kwargs = pytree.tree_unflatten(leaves, tree)
        node.args = node.args[: rng.choice([None, None, None, -1])]
    elif how == "target" and (packet := getattr(node.target, "overloadpacket", None)):
        others = [getattr(packet, name) for name in packet.overloads()]
        node.target = rng.choice([*others, rng.choice(calls).target, torch.ops.aten.relu.default])
    elif how == "type":
        place = rng.choice([node for node in everything if node.op == "placeholder"])
        old = place.meta["val"]
        place.meta["val"] = rng.choice([old.to(kind), old.to(kind), old.new_empty([*old.shape, 2])])
    elif how == "state" and state:
        old = state.pop(name := rng.choice(sorted(state))).detach()
        state.update(rng.choice([{}, {"other": old}, {name: old.to(kind)}, {name: old[..., None]}]))
    else:
        specs = rng.choice([signature.input_specs, signature.output_specs])
        new = copy.deepcopy(specs[at := rng.randrange(len(specs))])
        setattr(*rng.choice([(new.arg, "name"), (new, "target")]), "other")
        specs[at : at + 1] = rng.choice([[], [specs[at]] * 2, [new], [new]])


def mutated_program(number: int, rng: random.Random) -> Any:
    content = saved(number % 5)
    if rng.random() < 0.2:
        content = damaged(content, rng)
        with contextlib.suppress(TvmlabError):
            raise AssertionError(f"{tvmlab.load(content)} from a file of PyTorch")
        return torch.export.load(io.BytesIO(content))
    change_program(program := torch.export.load(io.BytesIO(content)), rng)
    program.graph_module.recompile()
    return program


def by_onnx_runtime(proto: Any, *inputs: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()  # its optimizations quantize biases
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    running = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    names = [wanted.name for wanted in running.get_inputs()]
    return list(running.run(None, dict(zip(names, inputs, strict=True))))


def by_pytorch(program: Any, *inputs: Any) -> list[Any]:
    made = program.module()(*map(torch.from_numpy, inputs))
    return [one.detach().numpy() for one in pytree.tree_leaves(made) if one is not None]


def check(kind: str, number: int) -> tuple[str, str]:
    """Return the result of a mutation and the reason."""
    report(number, "reading")
    rng, numbers = random.Random(number), np.random.default_rng(number)
    try:
        source = mutated_model(number, rng) if kind == "onnx" else mutated_program(number, rng)
    except Exception as error:
        return "unreadable", f"{type(error).__name__}: {error}"
    report(number, "tvmlab")
    try:
        executable = tvmlab.compile(tvmlab.load(source))
        inputs = [
            numbers.standard_normal(one.shape).astype(one.dtype)
            if "float" in one.dtype
            else numbers.integers(0, 2 if one.dtype == "bool" else 4, one.shape).astype(one.dtype)
            for one in executable.signature.inputs
        ]
        ours = as_tuple(executable(*inputs))
    except TvmlabError as error:
        return "refused", error.what
    report(number, "peer")
    try:
        if isinstance(source, bytes):
            source = onnx.ModelProto.FromString(source)
        theirs = (by_onnx_runtime if kind == "onnx" else by_pytorch)(source, *inputs)
    except Exception as error:
        return "alone", f"{type(error).__name__}: {error}"
    try:
        for mine, other in zip(ours, theirs, strict=True):
            close = 1e-3 * (mine.dtype.kind == "f")
            np.testing.assert_allclose(mine, other, close, close / 10, strict=True)
    except (AssertionError, ValueError) as error:
        return "wrong", str(error)
    return "right", ""


def report(number: int, status: str, reason: str = "") -> None:
    """Write a line to the parent."""
    print(json.dumps([number, status, " ".join(reason.split())[:300]]), file=OUT, flush=True)


if __name__ == "__main__":
    OUT = os.fdopen(os.dup(1), "w")
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    for number in map(int, sys.argv[2:]):
        signal.setitimer(signal.ITIMER_PROF, LIMIT)  # these signals end the process
        signal.alarm(10 * LIMIT)
        try:
            result = check(sys.argv[1], number)
        except Exception as error:
            result = "failed", f"{type(error).__name__}: {error}"
        report(number, *result)
