"""Decoders of open batches and lengths, in the forms that exporters write, and their results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto
from torch import nn
from torch.export import Dim

import tvmlab
from tests.frontend.test_indices import by_onnx
from tests.indices.modules import Program, exported
from tests.oracles.models import array, model, node, value, weight
from tvmlab.errors import InputError

WIDTH, HEADS, GROUPS, LONGEST = 32, 4, 2, 40


class Decoder(nn.Module):
    """A block as in GPT-2 and Llama: causal attention to the same text, with fewer keys."""

    def __init__(self) -> None:
        super().__init__()
        size, each = WIDTH // HEADS, WIDTH // HEADS * GROUPS
        self.words, self.places = nn.Embedding(50, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.norm, self.q, self.kv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.ModuleList()
        self.kv.extend(nn.Linear(WIDTH, each) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.register_buffer("table", torch.rand(LONGEST, size))

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return torch.cat([-x[..., half:], x[..., :half]], -1) * self.table[: x.shape[-2]]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        places = torch.arange(length)[None].expand(batch, -1)
        first = places[:, :1] - 1
        text = (torch.diff(places, prepend=first, dim=-1) != 1).cumsum(-1)
        same = text[:, :, None] == text[:, None, :]
        mask = (places[:, :, None] >= places[:, None, :]) & same
        x = self.words(ids) + self.places(places)
        y = self.norm(x)
        q, k, v = (
            one(y).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)
            for one in (self.q, *self.kv)
        )
        q, k = self.turned(q), self.turned(k)
        k, v = (
            one[:, :, None].expand(-1, -1, HEADS // GROUPS, -1, -1).reshape(q.shape)
            for one in (k, v)
        )
        made = nn.functional.scaled_dot_product_attention(q, k, v, mask[:, None])
        x = x + made.transpose(1, 2).reshape(batch, length, WIDTH)
        return x + self.down(nn.functional.gelu(self.up(x)))


@pytest.fixture(scope="module")
def decoder() -> nn.Module:
    torch.manual_seed(0)
    return Decoder().eval()


OPEN = {"batch": {0: Dim("b", min=1, max=9)}, "length": {1: Dim("n", min=2, max=LONGEST)}}
OPEN["both"] = OPEN["batch"] | OPEN["length"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.triu(torch.full(2 * x.shape, -torch.inf), 1) + x,
        lambda x: torch.full_like(x, torch.nan) + x,
        lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)],
        lambda x: x[torch.arange(x.shape[0] - 1, 0, -2)] * 2,
        lambda x: torch.arange(3 * x.shape[0], 1, -2) + x.sum().long(),
    ],
    ids=["infinite", "not a number", "backwards", "each second", "range"],
)
@pytest.mark.parametrize("schedule", [True, pytest.param(False, marks=pytest.mark.full)])
def test_masks_and_ranges_of_open_lengths(
    function: Callable[[torch.Tensor], torch.Tensor], schedule: bool
) -> None:
    sizes = ({0: Dim("n", min=4, max=40)},)
    mod = exported(Program(function), array(7), dynamic_shapes=(sizes,))
    run = tvmlab.compile(mod, schedule=schedule)
    for size in (4, 5, 17, 40):
        x = torch.rand(size)
        assert np.array_equal(run(x.numpy()), function(x).numpy(), equal_nan=True)


@pytest.mark.parametrize("which", OPEN)
def test_a_decoder_is_right_for_every_size(which: str, decoder: nn.Module) -> None:
    example = torch.zeros(1 if which == "length" else 3, 7, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(decoder, (example,), dynamic_shapes=(OPEN[which],))
        run = tvmlab.compile(tvmlab.load(program))
    batches = [1] if which == "length" else [1, 2, 5, 9]
    lengths = [7] if which == "batch" else [2, 3, 8, 16, 17, LONGEST]
    for batch in batches:
        for length in lengths:
            ids = torch.randint(0, 50, (batch, length))
            expected = decoder(ids).detach().numpy()
            np.testing.assert_allclose(run(ids), expected, rtol=1e-4, atol=1e-5)
    if which != "batch":
        with pytest.raises(InputError):
            run(torch.zeros(1, LONGEST + 1, dtype=torch.int64))
    if which != "length":
        with pytest.raises(InputError, match="is 10, but the model was exported for at most 9"):
            run(torch.zeros(10, lengths[-1], dtype=torch.int64))


def slices(module: nn.Module, sizes: dict[int, Any]) -> Any:
    return tvmlab.load(torch.export.export(module, (torch.ones(3, 8),), dynamic_shapes=(sizes,)))


@pytest.mark.parametrize(
    ("begin", "end", "step"),
    [(0, -1, 1), (1, None, 1), (-2, None, 1), (0, -2, 2), (1, -1, 3), (None, 10**9, 1)],
)
def test_slices_of_the_last_axis_need_no_clamps(begin: Any, end: Any, step: int) -> None:
    class Part(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.slice.Tensor(x, -1, begin, end, step) * 2

    mod = slices(Part(), {0: Dim("b"), 1: Dim("n", min=8, max=99)})
    for text in ("T.min", "T.max", "if_then_else"):
        assert text not in str(mod["main"].ret_ty)
    run = tvmlab.compile(mod)
    for size in (8, 9, 16, 33, 99):
        x = array(2, size)
        np.testing.assert_array_equal(run(x), x[:, begin:end:step] * 2)


# ONNX


def operators(*results: Any) -> Any:
    """A model of x (n, m, 4) that computes with its sizes."""
    nodes = [
        node("Shape", ["x"], ["n"], end=1),
        node("Shape", ["x"], ["m"], start=1, end=2),
        node("Squeeze", ["m"], ["columns"]),
        *results,
    ]
    return model(
        nodes,
        [value("x", TensorProto.FLOAT, ["n", "m", 4])],
        [value("y", TensorProto.FLOAT, None)],
        [
            weight("back", np.array([-1])),
            weight("front", np.array([0])),
            weight("none", np.array(0)),
            weight("one", np.array(1)),
            weight("ones", np.array([1])),
            weight("two", np.array([2])),
            weight("four", np.array([4])),
            weight("vector", array(4)),
        ],
        opset=18,
    )


SIZES = {
    "a range as long as an axis": (
        node("Range", ["none", "columns", "one"], ["places"]),
        node("Cast", ["places"], ["y"], to=1),
    ),
    "rows of all batches": (
        node("Concat", ["back", "four"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ),
    "the rest of a shape": (
        node("Concat", ["back", "m", "two"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ),
    "a row for each": (
        node("Concat", ["n", "m", "four"], ["shape"], axis=0),
        node("Expand", ["vector", "shape"], ["y"]),
    ),
    "expanded to ones": (
        node("Concat", ["ones", "ones", "ones"], ["shape"], axis=0),
        node("Expand", ["x", "shape"], ["y"]),
    ),
    "all but the last": (
        node("Sub", ["m", "ones"], ["end"]),
        node("Slice", ["x", "front", "end", "ones"], ["y"]),
    ),
    "to a sum": (
        node("Add", ["columns", "one"], ["more"]),
        node("Reshape", ["more", "back"], ["end"]),
        node("Concat", ["x", "x"], ["twice"], axis=1),
        node("Slice", ["twice", "ones", "end", "ones"], ["y"]),
    ),
    "a size as a number": (
        node("Cast", ["columns"], ["float"], to=1),
        node("Div", ["x", "float"], ["y"]),
    ),
    "an element of a shape": (
        node("Shape", ["x"], ["all"]),
        node("Gather", ["all", "one"], ["count"]),
        node("Mul", ["count", "count"], ["square"]),
        node("Cast", ["square"], ["y"], to=1),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_onnx_are_computed_with(name: str) -> None:
    mod, theirs = by_onnx(operators(*SIZES[name]), {"x": ("n", "m", 4)})
    run = tvmlab.compile(mod)
    for n, m in [(1, 1), (1, 5), (2, 2), (3, 8), (7, 4)]:
        x = array(n, m, 4)
        found, expected = run(x), theirs(x)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6)
