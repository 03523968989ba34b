"""PyTorch's quantized operators: the same numbers as PyTorch; what cannot be right is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - defines the operators

import tvmlab
from tests.oracles.models import array, quickly, said
from tvmlab.errors import ModelError, UnsupportedOperatorError

Q = torch.ops.quantized_decomposed
INT8, INT32 = (-128, 127, torch.int8), (-(2**31), 2**31 - 1, torch.int32)


class Function(nn.Module):
    """A module that computes a function of its input; `stored` are buffers of it."""

    def __init__(self, function: Callable[..., Any], **stored: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in stored.items():
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def data(*shape: int) -> torch.Tensor:
    return torch.from_numpy(array(*shape) * 40)


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


class Case(NamedTuple):
    """A function, its input, its buffers, and how often the import has some text."""

    function: Callable[..., Any]
    x: torch.Tensor
    stored: dict[str, torch.Tensor]
    counts: dict[str, int]


def one_scale(module: Any, x: torch.Tensor) -> Any:
    """Each dtype in each overload, whose numbers are tensors as far as their names say."""
    results = []
    for dtype in ("int8", "uint8", "int16"):
        for overload, tensors in (("default", 0), ("tensor", 2), ("tensor2", 4)):
            stored = [getattr(module, f"{dtype}_{i}") for i in range(tensors)]
            given = [*stored, *NUMBERS[dtype][tensors:], getattr(torch, dtype)]
            results.append(getattr(Q.quantize_per_tensor, overload)(x, *given))
            results.append(getattr(Q.dequantize_per_tensor, overload)(results[-1], *given))
    return tuple(results)


NUMBERS: dict[str, list[Any]] = {
    "int8": [0.25, 3, -128, 127],
    "uint8": [0.25, 131, 0, 255],
    "int16": [0.25, 3, -(2**15), 2**15 - 1],
}


def channels(module: Any, x: torch.Tensor) -> Any:
    results = []
    for axis in range(3):
        given = [getattr(module, f"s{axis}"), getattr(module, f"z{axis}"), axis, *INT8]
        results.append(Q.quantize_per_channel(x, *given))
        results.append(Q.dequantize_per_channel(results[-1], *given))
    return tuple(results)


def bias(module: Any, x: torch.Tensor) -> Any:
    """Stored as integers, or quantized in the graph: upstream's quantize makes no int32."""
    stored = Q.dequantize_per_channel(module.q, module.s, module.z, 0, *INT32)
    made = Q.quantize_per_tensor(module.bias, 0.001, 0, *INT32)
    return x + stored + Q.dequantize_per_tensor(made, 0.001, 0, *INT32)


def without_zeros(module: Any, x: torch.Tensor) -> Any:
    return Q.dequantize_per_channel(module.q, module.s, None, 0, -127, 127, torch.int8) + x


def ranges(_: Any, x: torch.Tensor) -> Any:
    pairs = [(-127, 127), (-128, 63), (0, 127), (-128, 127)]
    return tuple(Q.quantize_per_tensor(x, 1.0, 2, *pair, torch.int8) for pair in pairs)


def product(module: Any, x: torch.Tensor) -> Any:
    """PyTorch quantizes stored values, so that a weight needs neither a quantize nor a clip."""
    given = [module.s, module.z, 0, -127, 127, torch.int8]
    return x @ Q.dequantize_per_channel(Q.quantize_per_channel(module.w, *given), *given).t()


CASES = {
    "one scale": Case(
        one_scale,
        data(2, 3, 4),
        {f"{d}_{i}": torch.tensor(v) for d, given in NUMBERS.items() for i, v in enumerate(given)},
        {'R.const(131, "int32"), out_dtype="uint8"': 3, "astype": 0, "R.quantize(": 9},
    ),
    "channels": Case(
        channels,
        data(2, 3, 4),
        {f"s{i}": torch.tensor([0.25, 0.5, 1.0, 2.0])[: i + 2] for i in range(3)}
        | {f"z{i}": torch.arange(i + 2) for i in range(3)},
        {f"axis={axis})": 2 for axis in range(3)},
    ),
    "bias": Case(
        bias,
        data(2, 3),
        {
            "q": torch.tensor([100_000, -7, 2**30], dtype=torch.int32),
            "s": torch.tensor([0.5, 0.125, 2e-9]),
            "z": zeros(3),
            "bias": torch.tensor([123.4567, -0.0025, 8.0]),
        },
        {"R.quantize(": 0, "R.dequantize(": 2},
    ),
    "without zeros": Case(
        without_zeros,
        data(2, 3),
        {
            "q": torch.tensor([[1, 2, -128], [4, 5, 127]], dtype=torch.int8),
            "s": torch.tensor([0.5, 0.125]),
        },
        {},
    ),
    "ties": Case(
        lambda _, x: Q.quantize_per_tensor(x, 1.0, 3, *INT8),
        torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30]),
        {},
        {},
    ),
    "narrow ranges": Case(
        ranges,
        torch.tensor([-1e9, -400.0, -126.6, -3.0, 0.0, 5.0, 126.6, 400.0, 1e9]),
        {},
        {"R.quantize(": 4, "R.clip(": 3},
    ),
    "stored values": Case(
        product,
        torch.tensor([[1.0, 2.0, 4.0]]),
        {
            "w": torch.tensor([[1.0, -2.0, -128.0], [-64.0, 3.0, 1.0]]),
            "s": torch.tensor([1.0, 0.5]),
            "z": zeros(2),
        },
        {"R.quantize(": 0, "R.clip(": 0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_give_pytorch_s_bits(name: str) -> None:
    function, x, stored, counts = CASES[name]
    module = Function(function, **stored).eval()
    mod = tvmlab.load(torch.export.export(module, (x,)))
    expected = module(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, theirs in zip(quickly(mod, x.numpy()), expected, strict=True):
        assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(ours, theirs.numpy())
    text = mod.script()
    assert {part: text.count(part) for part in counts} == counts


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
    assert 'dtype="int8") = R.quantize(' not in mod.script()
    assert "batch_norm" not in mod.script()
    (result,) = quickly(mod, np.ascontiguousarray(x.numpy()))
    assert np.linalg.norm(result - expected) <= 0.01 * np.linalg.norm(expected)


# What is refused


def quantize(*numbers: Any) -> Any:
    return lambda _, x: Q.quantize_per_tensor(x, *numbers)


def by_channel(scales: list[float], points: list[int]) -> Any:
    def made(module: Any, x: torch.Tensor) -> Any:
        return Q.quantize_per_channel(x, module.scales, module.points, 1, *INT8)

    return Function(made, scales=torch.tensor(scales), points=torch.tensor(points))


def write_half(_: Any, x: torch.Tensor) -> Any:
    q = Q.quantize_per_tensor(x, 0.5, 0, *INT8)
    return Q.dequantize_per_tensor(q, 0.5, 0, *INT8, out_dtype=torch.float16)


def choose(_: Any, x: torch.Tensor) -> Any:
    scale, zero = Q.choose_qparams.tensor(x, -128, 127, 1e-7, torch.int8)
    return Q.quantize_per_tensor.tensor(x, scale, zero, *INT8)


def computed(_: Any, x: torch.Tensor) -> Any:
    return Q.quantize_per_tensor.tensor(x, x.abs().max() / 127, zeros(), *INT8)


def by_group(module: Any, x: torch.Tensor) -> Any:
    return Q.quantize_per_channel_group(x, module.s, module.z, -8, 7, torch.int8, 2)


#: A function or a module, the error, and its words.
REFUSED: list[tuple[Any, type[ModelError], str]] = [
    (quantize(-1.0, 0, *INT8), ModelError, "a scale of -1.0"),
    (quantize(float("nan"), 0, *INT8), ModelError, "a scale of nan"),
    (quantize(0.5, 200, *INT8), ModelError, "a zero point of 200, out of int8's range"),
    (by_channel([0.5, 0.0, 0.5, 1.0], [0] * 4), ModelError, "a scale of 0.0"),
    (by_channel([0.5, 0.5], [0, 0]), ModelError, "2 scales for an axis of 4"),
    (by_channel([0.5] * 4, [0, 0]), ModelError, "2 zero points for an axis of 4"),
    *(
        (function, UnsupportedOperatorError, match)
        for function, match in (
            (quantize(0.5, 0, *INT32), "a computed value to int32"),
            (quantize(0.5, 0, -448, 448, torch.float8_e4m3fn), "quantizes to float8_e4m3fn"),
            (lambda _, x: quantize(0.5, 0, *INT8)(_, x.half()), "it reads torch.float16"),
            (write_half, "the result is torch.float16"),
            (choose, r"choose_qparams\.tensor"),
            (computed, "its scale is computed when"),
            (Function(by_group, s=torch.ones(2, 2), z=zeros(2, 2)), "per_channel_group"),
        )
    ),
]


@pytest.mark.parametrize(("function", "kind", "match"), REFUSED)
def test_a_program_that_cannot_be_right_is_refused(
    function: Any, kind: type[ModelError], match: str
) -> None:
    module = function if isinstance(function, nn.Module) else Function(function)
    program = torch.export.export(module.eval(), (data(2, 4),))
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(program)
    assert type(caught.value) is kind
    said(caught.value)
