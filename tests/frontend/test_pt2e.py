"""PyTorch's quantized operators: the same numbers as PyTorch; what cannot be right is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - defines the operators

import tvmlab
from tests.oracles.models import array, quickly, said
from tvmlab.errors import ModelError, UnsupportedOperatorError
from tvmlab.frontend import pytorch

Q = torch.ops.quantized_decomposed
DTYPES = {name: getattr(torch, name) for name in ("int8", "uint8", "int16")}


class Function(nn.Module):
    """A module that computes a function of its input; `stored` are buffers of it."""

    def __init__(self, function: Callable[..., Any], **stored: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in stored.items():
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def exported(function: Callable[..., Any], x: torch.Tensor, **stored: torch.Tensor) -> Any:
    return torch.export.export(Function(function, **stored).eval(), (x,))


def same(function: Callable[..., Any], x: torch.Tensor, **stored: torch.Tensor) -> str:
    """Compare bit for bit with PyTorch; the module's text."""
    mod = tvmlab.load(exported(function, x, **stored))
    expected = Function(function, **stored)(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, theirs in zip(quickly(mod, x.numpy()), expected, strict=True):
        assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(ours, theirs.numpy())
    return str(mod.script())


def data(*shape: int) -> torch.Tensor:
    return torch.from_numpy(array(*shape) * 40)


def limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def test_one_scale() -> None:
    cases, stored = [], {}
    for dtype in ("int8", "uint8", "int16"):
        for overload, tensors in (("default", 0), ("tensor", 2), ("tensor2", 4)):
            numbers = [0.25, 131 if dtype == "uint8" else 3, *limits(dtype)]
            names = [f"{dtype}_{overload}_{i}" for i in range(tensors)]
            stored |= {n: torch.tensor(v) for n, v in zip(names, numbers, strict=False)}
            cases.append((overload, DTYPES[dtype], names, numbers[tensors:]))

    def there_and_back(module: Any, x: torch.Tensor) -> Any:
        results = []
        for overload, dtype, names, numbers in cases:
            given = [*(getattr(module, name) for name in names), *numbers, dtype]
            results.append(getattr(Q.quantize_per_tensor, overload)(x, *given))
            results.append(getattr(Q.dequantize_per_tensor, overload)(results[-1], *given))
        return tuple(results)

    text = same(there_and_back, data(2, 3, 4), **stored)
    assert text.count("R.quantize(") == text.count("R.dequantize(") == 9
    assert text.count('R.const(131, "int32"), out_dtype="uint8"') == 3
    assert "astype" not in text


def test_a_scale_for_each_channel() -> None:
    scales, zeros = torch.tensor([0.25, 0.5, 1.0, 2.0]), torch.arange(4)
    stored = {f"s{i}": scales[: i + 2] for i in range(3)} | {
        f"z{i}": zeros[: i + 2] for i in range(3)
    }

    def there_and_back(module: Any, x: torch.Tensor) -> Any:
        results = []
        for axis in range(3):
            given = [getattr(module, f"s{axis}"), getattr(module, f"z{axis}"), axis, -128, 127]
            results.append(Q.quantize_per_channel(x, *given, torch.int8))
            results.append(Q.dequantize_per_channel(results[-1], *given, torch.int8))
        return tuple(results)

    text = same(there_and_back, data(2, 3, 4), **stored)
    assert [text.count(f"axis={axis})") for axis in range(3)] == [2, 2, 2]


def test_a_bias_of_int32() -> None:
    """Stored as integers, or quantized in the graph: upstream's quantize makes no int32."""
    limits = (-(2**31), 2**31 - 1, torch.int32)

    def add(module: Any, x: torch.Tensor) -> Any:
        stored = Q.dequantize_per_channel(module.q, module.s, module.z, 0, *limits)
        made = Q.quantize_per_tensor(module.bias, 0.001, 0, *limits)
        return x + stored + Q.dequantize_per_tensor(made, 0.001, 0, *limits)

    text = same(
        add,
        data(2, 3),
        q=torch.tensor([100_000, -7, 2**30], dtype=torch.int32),
        s=torch.tensor([0.5, 0.125, 2e-9]),
        z=torch.zeros(3, dtype=torch.int64),
        bias=torch.tensor([123.4567, -0.0025, 8.0]),
    )
    assert "R.quantize(" not in text
    assert text.count("R.dequantize(") == 2


def test_without_zero_points() -> None:
    def back(module: Any, x: torch.Tensor) -> Any:
        return Q.dequantize_per_channel(module.q, module.scales, None, 0, -127, 127, torch.int8) + x

    same(
        back,
        data(2, 3),
        q=torch.tensor([[1, 2, -128], [4, 5, 127]], dtype=torch.int8),
        scales=torch.tensor([0.5, 0.125]),
    )


def test_ties_go_to_even() -> None:
    x = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30])
    same(lambda _, x: Q.quantize_per_tensor(x, 1.0, 3, -128, 127, torch.int8), x)


def test_a_narrow_range_is_a_clip() -> None:
    x = torch.tensor([-1e9, -400.0, -126.6, -3.0, 0.0, 5.0, 126.6, 400.0, 1e9])

    def quantize(_: Any, x: torch.Tensor) -> Any:
        ranges = [(-127, 127), (-128, 63), (0, 127), (-128, 127)]
        return tuple(Q.quantize_per_tensor(x, 1.0, 2, *pair, torch.int8) for pair in ranges)

    text = same(quantize, x)
    assert text.count("R.quantize(") == 4
    assert text.count("R.clip(") == 3


def test_stored_values_are_quantized_when_they_are_imported() -> None:
    """By PyTorch itself, so that a weight needs neither a quantize nor a clip."""

    def product(module: Any, x: torch.Tensor) -> Any:
        given = [module.scales, module.zeros, 0, -127, 127, torch.int8]
        q = Q.quantize_per_channel(module.weight, *given)
        return x @ Q.dequantize_per_channel(q, *given).t()

    weight = torch.tensor([[1.0, -2.0, -128.0], [-64.0, 3.0, 1.0]])
    stored = {"scales": torch.tensor([1.0, 0.5]), "zeros": torch.zeros(2, dtype=torch.int64)}
    text = same(product, torch.tensor([[1.0, 2.0, 4.0]]), weight=weight, **stored)
    assert "R.quantize(" not in text
    assert "R.clip(" not in text


# torchao


@pytest.mark.filterwarnings("ignore")
def test_a_network_quantized_by_torchao() -> None:
    """Convolution, batch norm, relu, pooling and a dense layer, in channels-last memory.

    Weights stay float in the program, and are quantized when they are imported.
    """
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(8, 8, 3, groups=8), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(8, 5)).eval()
    nn.init.uniform_(network[1].running_mean)
    nn.init.uniform_(network[1].running_var, 0.5, 1.5)
    network = network.to(memory_format=torch.channels_last)
    x = data(4, 3, 10, 10).to(memory_format=torch.channels_last) / 40
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    with torch.no_grad():
        module = prepare_pt2e(torch.export.export(network, (x,)).module(), quantizer)
        module(x)
        module = convert_pt2e(module, fold_quantize=False)
        program = torch.export.export(module, (x,))
        expected = module(x).numpy()
    mod = tvmlab.load(program)
    text = mod.script()
    assert 'dtype="int8") = R.quantize(' not in text
    assert "batch_norm" not in text
    (result,) = quickly(mod, np.ascontiguousarray(x.numpy()))
    assert np.linalg.norm(result - expected) <= 0.01 * np.linalg.norm(expected)


# What is refused


@functools.cache
def of_one_scale() -> Any:
    return exported(
        lambda _, x: Q.quantize_per_tensor(x, 0.5, 0, -128, 127, torch.int8), data(2, 3)
    )


@functools.cache
def of_channels() -> Any:
    return exported(
        lambda m, x: Q.quantize_per_channel(x, m.s, m.z, 1, -128, 127, torch.int8),
        data(2, 3),
        s=torch.ones(3),
        z=torch.zeros(3, dtype=torch.int64),
    )


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ((0.0, 0, -128, 127), "a scale of 0.0"),
        ((float("nan"), 0, -128, 127), "a scale of nan"),
        ((0.5, 200, -128, 127), "a zero point of 200, out of int8's range"),
        ((0.5, 0, 5, -5), "a range from 5 to -5"),
        (([0.5, 0.0, 0.5], [0, 0, 0]), "a scale of 0.0"),
        (([0.5, 0.5], [0, 0]), "2 scales for an axis of 3"),
        (([0.5, 0.5, 0.5], [0, 0]), "2 zero points for an axis of 3"),
        ((2, -128, 127), "axis 2 of a tensor with 2 dimensions"),
    ],
)
def test_wrong_numbers(given: tuple[Any, ...], match: str) -> None:
    """Change the only node's arguments, or the stored scales and zero points, and convert it."""
    program = of_one_scale() if len(given) == 4 else of_channels()
    node = next(n for n in program.graph.nodes if n.op == "call_function")
    before, kept = node.args, dict(program.state_dict)
    if len(given) == 2:
        program.state_dict.update(s=torch.tensor(given[0]), z=torch.tensor(given[1]))
    else:
        node.args = (*before[: -len(given) - 1], *given, before[-1])
    try:
        with pytest.raises(ModelError, match=match) as caught:
            pytorch.quantized_converters(program)[node.target.__name__](node, None)
    finally:
        node.args = before
        program.state_dict.update(kept)
    assert type(caught.value) is ModelError
    assert f"node {node.name!r}, operator quantized_decomposed.quantize_per_" in said(caught.value)


def quantize(dtype: torch.dtype, scale: float = 0.5, low: int = -128, high: int = 127) -> Any:
    return lambda _, x: Q.quantize_per_tensor(x, scale, 0, low, high, dtype)


def read_half(_: Any, x: torch.Tensor) -> Any:
    return Q.quantize_per_tensor(x.to(torch.float16), 0.5, 0, -128, 127, torch.int8)


def write_half(_: Any, x: torch.Tensor) -> Any:
    q = Q.quantize_per_tensor(x, 0.5, 0, -128, 127, torch.int8)
    return Q.dequantize_per_tensor(q, 0.5, 0, -128, 127, torch.int8, out_dtype=torch.float16)


def choose(_: Any, x: torch.Tensor) -> Any:
    scale, zero = Q.choose_qparams.tensor(x, -128, 127, 1e-7, torch.int8)
    return Q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)


def computed(_: Any, x: torch.Tensor) -> Any:
    scale, zero = x.abs().max() / 127, torch.zeros((), dtype=torch.int64)
    return Q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)


def by_group(module: Any, x: torch.Tensor) -> Any:
    return Q.quantize_per_channel_group(x, module.s, module.z, -8, 7, torch.int8, 2)


#: A function, what the error says, and where or how to go on.
REFUSED: list[tuple[Callable[..., Any], type[ModelError], str, str]] = [
    (quantize(torch.int8, -1.0), ModelError, "a scale of -1.0", "node 'quantize_per_tensor'"),
    *(
        (function, UnsupportedOperatorError, match, more)
        for function, match, more in (
            (quantize(torch.int32, 0.5, -(2**31), 2**31 - 1), "a computed value to int32", ""),
            (quantize(torch.float8_e4m3fn, 0.5, -448, 448), "quantizes to float8_e4m3fn", ""),
            (read_half, "it reads torch.float16", "supported are quantize_per_tensor"),
            (write_half, "the result is torch.float16", "node 'dequantize_per_tensor'"),
            (choose, r"choose_qparams\.tensor", "node 'choose_qparams' (quantized_decomposed."),
            (computed, "its scale is computed when", "dynamic quantization"),
            (by_group, "per_channel_group", "supported are"),
        )
    ),
]


@pytest.mark.parametrize(("function", "kind", "match", "more"), REFUSED)
def test_a_program_that_cannot_be_right_is_refused(
    function: Callable[..., Any], kind: type[ModelError], match: str, more: str
) -> None:
    stored = {"s": torch.ones(2, 2), "z": torch.zeros(2, 2, dtype=torch.int64)}
    program = exported(function, data(2, 4), **(stored if function is by_group else {}))
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(program)
    assert type(caught.value) is kind
    assert more in said(caught.value)
