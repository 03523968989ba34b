"""Exported PyTorch programs: the same numbers as PyTorch; what cannot be right is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - defines the operators

import tvmlab
from tests.indices.modules import Program
from tests.oracles.models import array, as_tuple, quickly, said
from tvmlab.errors import ModelError, ShapeError, UnsupportedOperatorError

nn, F = torch.nn, torch.nn.functional


def export(module: Any, *inputs: Any, **more: Any) -> Any:
    return torch.export.export(module.eval(), inputs, **more)


def agree_with_pytorch(
    module: Any, *inputs: torch.Tensor, close: float = 1e-4, atol: float | None = None
) -> None:
    executable = tvmlab.compile(tvmlab.load(export(module, *inputs)))
    with torch.no_grad():
        theirs = module(*inputs)
    ours = as_tuple(executable(*inputs))
    atol = close / 10 if atol is None else atol
    for mine, other in zip(ours, theirs if isinstance(theirs, tuple) else (theirs,), strict=True):
        assert str(mine.dtype) == str(other.dtype).removeprefix("torch.")
        np.testing.assert_allclose(mine, other.numpy(), rtol=close, atol=atol)


def tensor(*shape: int) -> torch.Tensor:
    return torch.from_numpy(array(*shape))


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(3, 4, 3, groups=1, bias=False), nn.BatchNorm2d(4, affine=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.Softmax(1)),
        nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.BatchNorm2d(4)),
        nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 1)),
        nn.Sequential(nn.AvgPool2d(2), nn.Dropout(0.5), nn.GELU()),
    ],
    ids=["conv-norm", "no-affine", "dense", "transposed", "norm-first", "dropout"],
)
def test_modules(module: Any) -> None:
    torch.manual_seed(1)
    for norm in (m for m in module if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 1.5)
    agree_with_pytorch(module.eval(), tensor(1, 3, 8, 8))


def test_a_dynamic_batch() -> None:
    module = nn.Linear(4, 3)
    program = export(module, tensor(2, 4), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    executable = tvmlab.compile(tvmlab.load(program))
    for x in (tensor(1, 4), tensor(5, 4)):
        np.testing.assert_allclose(executable(x), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_several_inputs_and_outputs() -> None:
    agree_with_pytorch(Program(lambda a, b: (a + b, a * b, a)), tensor(3), tensor(3) + 1)


def test_outputs_have_the_names_that_pytorch_gave_them() -> None:
    """Those of the graph's nodes, before operators are decomposed; where they serve."""
    for function, expected in (
        (torch.nn.functional.silu, ["silu"]),
        (lambda a: (a + 1, a * 2), ["add", "mul"]),
        (lambda a: (a + 1,) * 2, ["output_0", "output_1"]),  # two outputs cannot share a name
    ):
        made = tvmlab.compile(tvmlab.load(export(Program(function), tensor(2, 3)))).signature
        assert [one.name for one in made.outputs] == expected


def test_what_cannot_be_imported_is_refused() -> None:
    program = export(Program(lambda x: torch.linalg.svd(x)[1]), tensor(3, 3))
    with pytest.raises(UnsupportedOperatorError, match="linalg_svd") as caught:
        tvmlab.load(program)
    said(caught.value)
    with pytest.raises(ShapeError, match="has its shapes fixed already") as wrong:
        tvmlab.load(export(nn.ReLU(), tensor(3)), shapes={"x": (3,)})
    assert "dynamic_shapes" in said(wrong.value)
    for module in (nn.ReLU(), Program(lambda x: x), torch.zeros(3)):
        with pytest.raises(ModelError, match="must be exported") as unready:
            tvmlab.load(module)
        assert "torch.export.export" in said(unready.value)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (Counter(), "'count'"),
        (Program(lambda x: x.add_(1) * 2), "'inputs_0'"),
        (nn.Sequential(nn.BatchNorm1d(3)), "'0.running_mean'"),
    ],
    ids=["buffer", "input", "training"],
)
def test_a_program_that_changes_its_state_is_refused(module: Any, named: str) -> None:
    program = torch.export.export(module, (tensor(3, 3),))
    with pytest.raises(ModelError, match="writes to its buffers or inputs") as caught:
        tvmlab.load(program)
    assert named in caught.value.what
    assert "module.eval()" in said(caught.value)


# Quantized operators

Q = torch.ops.quantized_decomposed
INT8, INT32 = (-128, 127, torch.int8), (-(2**31), 2**31 - 1, torch.int32)


def data(*shape: int) -> torch.Tensor:
    return torch.from_numpy(array(*shape) * 40)


def back(kind: str, overload: str, x: torch.Tensor, *numbers: Any) -> tuple[Any, Any]:
    """Quantize and dequantize."""
    quantize, dequantize = (getattr(Q, f"{verb}_per_{kind}") for verb in ("quantize", "dequantize"))
    q = getattr(quantize, overload)(x, *numbers)
    return q, getattr(dequantize, overload)(q, *numbers)


NUMBERS = {"int8": [0.25, 3, -128, 127], "uint8": [0.25, 131, 0, 255]}
NUMBERS["int16"] = [0.25, 3, -(2**15), 2**15 - 1]
STORED = {dtype: list(map(torch.tensor, numbers)) for dtype, numbers in NUMBERS.items()}
EACH = [torch.tensor([0.25, 0.5, 1.0, 2.0][:count]) for count in (2, 3, 4)]
POINTS = [torch.arange(count) for count in (2, 3, 4)]
ZEROS, NONE = (torch.zeros(count, dtype=torch.int64) for count in (3, 2))
SMALL = torch.tensor([[1, 2, -128], [4, 5, 127]], dtype=torch.int8)
LARGE = torch.tensor([100_000, -7, 2**30], dtype=torch.int32)
FINE, BIAS = torch.tensor([0.5, 0.125, 2e-9]), torch.tensor([123.4567, -0.0025, 8.0])
WEIGHT = torch.tensor([[1.0, -2.0, -128.0], [-64.0, 3.0, 1.0]])
TIES = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30])
FAR = torch.tensor([-1e9, -400.0, -126.6, -3.0, 0.0, 5.0, 126.6, 400.0, 1e9])


def one_scale(x: torch.Tensor) -> Any:
    """Each dtype in each overload, whose numbers are tensors as far as their names say."""
    results: list[Any] = []
    for dtype, numbers in NUMBERS.items():
        for overload, tensors in (("default", 0), ("tensor", 2), ("tensor2", 4)):
            given = [*STORED[dtype][:tensors], *numbers[tensors:], getattr(torch, dtype)]
            results += back("tensor", overload, x, *given)
    return tuple(results)


def channels(x: torch.Tensor) -> Any:
    given = enumerate(zip(EACH, POINTS, strict=True))
    return sum((back("channel", "default", x, *two, axis, *INT8) for axis, two in given), ())


def bias(x: torch.Tensor) -> Any:
    """Stored as integers, or quantized in the graph: upstream's quantize makes no int32."""
    stored = Q.dequantize_per_channel(LARGE, FINE, ZEROS, 0, *INT32)
    return x + stored + back("tensor", "default", BIAS, 0.001, 0, *INT32)[1]


def narrow(x: torch.Tensor) -> Any:
    ranges = [(-127, 127), (-128, 63), (0, 127), (-128, 127)]
    return tuple(Q.quantize_per_tensor(x, 1.0, 2, *pair, torch.int8) for pair in ranges)


def product(x: torch.Tensor) -> Any:
    """PyTorch quantizes stored values, so that a weight needs neither a quantize nor a clip."""
    given = (EACH[0], NONE, 0, -127, 127, torch.int8)
    return x @ back("channel", "default", WEIGHT, *given)[1].t()


#: A function, its input, and how often the import has some text.
CASES: list[tuple[Callable[[torch.Tensor], Any], torch.Tensor, dict[str, int]]] = [
    (one_scale, data(2, 3, 4), {'out_dtype="uint8"': 3, "astype": 0, "R.quantize(": 9}),
    (channels, data(2, 3, 4), {f"axis={axis})": 2 for axis in range(3)}),
    (bias, data(2, 3), {"R.quantize(": 0, "R.dequantize(": 2}),
    (lambda x: Q.dequantize_per_channel(SMALL, EACH[0], None, 0, *INT8) + x, data(2, 3), {}),
    (lambda x: Q.quantize_per_tensor(x, 1.0, 3, *INT8), TIES, {}),
    (narrow, FAR, {"R.quantize(": 4, "R.clip(": 3}),
    (product, torch.tensor([[1.0, 2.0, 4.0]]), {"R.quantize(": 0, "R.clip(": 0}),
]


def exported(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    return torch.export.export(Program(function).eval(), (x,))


@pytest.mark.parametrize(("function", "x", "counts"), CASES)
def test_operators_give_pytorch_s_bits(
    function: Callable[[torch.Tensor], Any], x: torch.Tensor, counts: dict[str, int]
) -> None:
    mod = tvmlab.load(exported(function, x))
    for ours, theirs in zip(quickly(mod, x.numpy()), as_tuple(function(x)), strict=True):
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
    return lambda x: Q.quantize_per_tensor(x, *numbers)


def by_channel(scales: list[float], points: list[int]) -> Any:
    stored = torch.tensor(scales), torch.tensor(points)
    return lambda x: Q.quantize_per_channel(x, *stored, 1, *INT8)


def choose(x: torch.Tensor) -> Any:
    return Q.quantize_per_tensor.tensor(
        x, *Q.choose_qparams.tensor(x, -128, 127, 1e-7, torch.int8), *INT8
    )


def write_half(x: torch.Tensor) -> Any:
    q = Q.quantize_per_tensor(x, 0.5, 0, *INT8)
    return Q.dequantize_per_tensor(q, 0.5, 0, *INT8, out_dtype=torch.float16)


GROUPS = torch.ones(2, 2), torch.zeros((2, 2), dtype=torch.int64), -8, 7, torch.int8, 2
WRONG = [
    (quantize(-1.0, 0, *INT8), "a scale of -1.0"),
    (quantize(float("nan"), 0, *INT8), "a scale of nan"),
    (quantize(0.5, 200, *INT8), "a zero point of 200, out of int8's range"),
    (by_channel([0.5, 0.0, 0.5, 1.0], [0] * 4), "a scale of 0.0"),
    (by_channel([0.5, 0.5], [0, 0]), "2 scales for an axis of 4"),
    (by_channel([0.5] * 4, [0, 0]), "2 zero points for an axis of 4"),
]
UNSUPPORTED = [
    (quantize(0.5, 0, *INT32), "a computed value to int32"),
    (quantize(0.5, 0, -448, 448, torch.float8_e4m3fn), "quantizes to float8_e4m3fn"),
    (lambda x: Q.quantize_per_tensor(x.half(), 0.5, 0, *INT8), "it reads torch.float16"),
    (write_half, "the result is torch.float16"),
    (choose, r"choose_qparams\.tensor"),
    (
        lambda x: Q.quantize_per_tensor.tensor(x, x.max(), ZEROS[0], *INT8),
        "its scale is computed at run time",
    ),
    (lambda x: Q.quantize_per_channel_group(x, *GROUPS), "per_channel_group"),
]


@pytest.mark.parametrize(
    ("kind", "function", "match"),
    [(ModelError, *row) for row in WRONG]
    + [(UnsupportedOperatorError, *row) for row in UNSUPPORTED],
)
def test_a_program_that_cannot_be_right_is_refused(
    kind: type[ModelError], function: Any, match: str
) -> None:
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(exported(function, data(2, 4)))
    assert type(caught.value) is kind
    said(caught.value)


# Operators that upstream converts wrongly

WHOLE = torch.arange(-6, 6).reshape(3, 4)
attend = F.scaled_dot_product_attention


def put(a: torch.Tensor, values: Any, *index: Any) -> torch.Tensor:
    a = a.clone()
    a[index] = values
    return a


MAXIMA: dict[str, Any] = {"kernel_size": 2, "return_indices": True}
PLACES = torch.tensor([[0, 1, 1, 3], [0, 2, 0, 0]])
ODD = torch.tensor([[1.0, -2.0, 0.0, -0.0], [torch.inf, -torch.inf, torch.nan, 3e30]])
RANDOM = torch.Generator().manual_seed(0)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=RANDOM)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda a, b: a / b, (WHOLE, WHOLE + 10)),
        (lambda a: a / 4, (WHOLE,)),
        (lambda a, b: torch.add(a, b, alpha=2), (tensor(3, 4), WHOLE)),
        (lambda a, b: torch.sub(a, b, alpha=3), (WHOLE, WHOLE + 1)),
        (lambda a: torch.rsub(a, 1, alpha=2), (tensor(3, 4),)),
        (F.selu, (100 * tensor(3, 4),)),
        (lambda a: F.celu(a, 0.5), (tensor(3, 4),)),
        (lambda a: F.max_pool2d(a, **MAXIMA)[0], (tensor(1, 2, 6, 7),)),
        (lambda a: a.amax((0, 2)), (tensor(2, 3, 4),)),
        (lambda a: a.amin(), (tensor(2, 3),)),
        (lambda a: (a.prod(1), a.int().prod(0)), (tensor(2, 3),)),
        (lambda a: a.logsumexp(1), (tensor(2, 3),)),
        (lambda a: torch.rsub(a, 1) // 0.1, (tensor(3, 4),)),
        (lambda a, b: (a // b, torch.div(a, b, rounding_mode="trunc"), a % b), (WHOLE, WHOLE + 10)),
        (lambda a, b: (a % b, torch.fmod(a, b)), (tensor(3, 4), tensor(3, 4).flip(0))),
        (lambda a: (a << 2, a >> 1, a**3, a.sqrt(), 2.5**a), (WHOLE.abs(),)),
        (lambda a: (a @ a.T, a.clamp(-1, 2), a.clamp(min=0), a > 0.5), (WHOLE,)),
        (
            lambda a, b: (a + b, a * b, a == b, a.cumsum(1), a.sum(), a.any(1)),
            (WHOLE > 0, WHOLE > 2),
        ),
        (lambda a: (a.double() @ a.double().T, a.cumsum(1)), (tensor(3, 4),)),
        (lambda a: (*a.max(1), *a.min(0), *a.sort(1, descending=True)), (WHOLE % 3,)),
        (lambda a: (a.unfold(1, 3, 2), a.unfold(-1, 2, 1)), (tensor(2, 7, 5),)),
        (lambda a: (F.adaptive_max_pool2d(a, (3, 2)), F.group_norm(a, 2)), (tensor(2, 4, 7, 5),)),
        (lambda a: (a.tanh().erfinv(), F.rrelu(a)), (tensor(3, 4),)),
        (lambda a: F.interpolate(a, scale_factor=1.7, mode="bicubic"), (tensor(1, 2, 6, 7),)),
        (
            lambda a: F.interpolate(a, (4, 9), mode="bilinear", antialias=True),
            (tensor(1, 2, 6, 7),),
        ),
        (lambda a, b: (torch.cdist(a, b), torch.cdist(a, b, 1.0)), (normal(2, 3, 4), normal(5, 4))),
        (lambda a: (*a.kthvalue(2, -2, True), *torch.var_mean(a, (0, 2))), (normal(3, 4, 5),)),
        (lambda a: torch.searchsorted(torch.arange(4.0), a, side="right"), (ODD * 2,)),
        (lambda a: (torch.searchsorted(a, a * 2), torch.bucketize(a, a[0] * 2)), (WHOLE,)),
        (lambda a: a.masked_scatter(a[:1] > 0, a.flip(0)), (normal(3, 4),)),
        (lambda a: (a.copysign(a.flip(1)), a.copysign(-1.0), a.signbit(), a.exp2()), (ODD,)),
        (lambda a: (a != a, a == a, a != 1, a.isnan(), a.isinf(), a.nanmean()), (ODD,)),
        (lambda a: (~(a < a.flip(1)), (a >= a.flip(1)).logical_not(), a.logical_not()), (ODD,)),
        (lambda a: (a.hypot(a.flip(1)), a.fmax(a.flip(1)), a.fmin(a[:1]), a.norm(0, 1)), (ODD,)),
        (lambda a: (a**2, a.amax(1), a.min(), a.max(1)[0], a.sort(1)[0], a.sign()), (WHOLE > 0,)),
        (lambda a: (a.topk(2)[0], a.argsort(stable=True), a.isinf()), (WHOLE.short(),)),
        (lambda a: (*a[0, 0].max(0), a[0, 0].amin(0)), (normal(2, 3),)),
        (lambda a: a.as_strided((3, 2), (1, 2), 1), (WHOLE,)),
        (lambda a: (torch.div(a, 3, rounding_mode=None), F.avg_pool1d(a, 2)), (normal(3, 4),)),
        (partial(F.grid_sample, align_corners=True), [normal(1, 3, 4, 5, 3)] * 2),
        (F.conv2d, (WHOLE.view(1, 1, 3, 4), WHOLE.view(3, 1, 2, 2), WHOLE[0, :3])),
        (lambda a: F.fold(a, (5, 6), 3, padding=1), (tensor(2, 18, 30),)),
        (lambda a, b: a.scatter_add(0, WHOLE.abs() % 3, b), (tensor(3, 4), tensor(3, 4) + 1)),
        (lambda a: put(a, 7.0, a > 0), (tensor(3, 4),)),
        (lambda a, i: (a[i], a[:, i], -(a > 0).byte()), (tensor(3, 4), torch.tensor(2))),
        (lambda a, b: torch.cat([torch.empty(0), a, b]), (tensor(3, 4), WHOLE)),
        (lambda a: torch.arange(11, -11, -2) + a, (WHOLE[:1, :1],)),
        (
            lambda a: attend(a, a, a).transpose(1, 2).reshape(2, 5, -1).view(-1, 8),
            (tensor(2, 2, 5, 4),),
        ),
    ],
)
def test_operators(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> None:
    agree_with_pytorch(Program(function), *inputs, close=4e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("more", [{}, {"batch_first": True, "bias": False}, {"num_layers": 2}])
@pytest.mark.parametrize("both", [False, True])
def test_recurrent_modules(kind: str, more: dict[str, Any], both: bool) -> None:
    torch.manual_seed(0)
    module = getattr(nn, kind)(3, 4, bidirectional=both, **more).eval()
    flat = Program(lambda x: tuple(torch.utils._pytree.tree_leaves(module(x))))
    flat.module = module
    agree_with_pytorch(flat, tensor(2, 3, 3))


def test_sizes_that_are_known_at_run_time() -> None:
    module, dynamic = Program(lambda x: x + x.shape[0]), {0: torch.export.Dim("batch", min=2)}
    executable = tvmlab.compile(
        tvmlab.load(export(module, tensor(2, 3), dynamic_shapes=((dynamic,),)))
    )
    for x in (tensor(2, 3), tensor(5, 3)):
        np.testing.assert_array_equal(executable(x), (x + x.shape[0]).numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 8)
    network = nn.Sequential(*layers, nn.LayerNorm(8), nn.GELU()).to(dtype).eval()
    program = Program(lambda x: network(x.to(dtype)).float())
    program.network = network
    agree_with_pytorch(program, tensor(2, 3, 5, 5), close=2 * torch.finfo(dtype).eps)
    whole = export(network, tensor(2, 3, 5, 5).to(dtype))
    x = tensor(2, 3, 5, 5).numpy().astype(str(dtype).removeprefix("torch."))
    assert tvmlab.compare(tvmlab.load(whole), whole, x, tolerance=0.05).first is None


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_index_put(draw: st.DataObject) -> None:
    axes = draw.draw(st.sets(st.integers(0, 2), min_size=1))
    index = [slice(None)] * 3
    for axis in axes:
        index[axis] = torch.tensor(draw.draw(st.permutations(range(-2, 2)))[:2])
    values = torch.tensor(draw.draw(st.floats(-9, 9, width=32)))
    agree_with_pytorch(Program(lambda a: put(a, values, *index)), tensor(4, 5, 6), close=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.data(), st.integers(1, 3), st.booleans(), st.integers(1, 2), st.integers(1, 3))
def test_convolution(
    draw: st.DataObject, count: int, transposed: bool, groups: int, stride: int
) -> None:
    name = f"conv{'_transpose' * transposed}{count}d"
    options = {"groups": groups, "stride": stride, "padding": draw.draw(st.integers(0, 2))}
    options["dilation"] = draw.draw(st.integers(1, 2))
    if transposed:
        options["output_padding"] = draw.draw(st.integers(0, stride - 1))
    weight = normal(4, 4 if transposed else 4 // groups, *[3, 2, 3][:count]).double()
    layer = Program(lambda a, b: getattr(F, name)(a, b, **options))
    agree_with_pytorch(layer, normal(2, 4, *[6, 7, 5][:count]).double(), weight)


@settings(max_examples=15, deadline=None)
@given(st.slices(7), st.sampled_from(["sum", "prod", "mean", "amax", "amin"]), st.booleans())
def test_writes(part: slice, reduce: str, own: bool) -> None:
    reduced = Program(lambda a, b: a.scatter_reduce(1, PLACES, b, reduce, include_self=own))
    agree_with_pytorch(reduced, normal(3, 4), normal(2, 5))
    agree_with_pytorch(reduced, WHOLE, WHOLE.flip(1))
    if (part.step is None or part.step > 0) and range(7)[part]:
        agree_with_pytorch(Program(lambda a: put(a, 7.0, slice(None), part)), normal(3, 7))


@settings(max_examples=15, deadline=None)
@given(*[st.integers(1, 9)] * 4)
def test_nearest_takes_pytorchs_pixels(rows: int, columns: int, tall: int, wide: int) -> None:
    resized = Program(lambda a: F.interpolate(a, size=(tall, wide)))
    agree_with_pytorch(resized, tensor(1, 2, rows, columns), close=1e-5)


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda a: F.max_pool2d(a, **MAXIMA)[1], "the results of max_pool2d_with_indices after"),
        (lambda a: torch.native_layer_norm(a, [7], None, None, 1e-5)[1], "of native_layer_norm"),
        (lambda a: F.avg_pool3d(a, 1, divisor_override=3), "divisor_override"),
        (lambda a: a[0, 0].T.as_strided((2, 2), (1, 2)), "as_strided of a part"),
        (
            lambda a: (a > 0).index_put((PLACES[0, :1],), a > 1, accumulate=True),
            "accumulates bools",
        ),
        (lambda a: a[0, 0].gt(0).scatter_reduce(1, PLACES, a[0, 0] > 1, "sum"), "of bools"),
        (lambda a: F.dropout(a, 0.5, True), "random numbers"),
        (lambda a: a + torch.randn_like(a), "random numbers"),
        (lambda a: put(a, torch.zeros(3, 7), a[:, :, 0, 0] > 9), "write to a mask"),
        (lambda a: WHOLE ** WHOLE.abs() + a[0, 0, 0, 0], "an integer power"),
        (lambda a: F.avg_pool2d(a, 2, divisor_override=3), "divisor_override"),
    ],
)
def test_operators_that_are_refused(function: Callable[..., Any], what: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=what):
        tvmlab.load(exported(function, tensor(1, 2, 6, 7)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.amax(1),
        lambda x: x.max(),
        lambda x: x.max(1),
        lambda x: x.argmax(1),
        lambda x: (-x).amin((0, 1), keepdim=True),
    ],
)
def test_extremes_can_be_infinite(function: Any) -> None:
    agree_with_pytorch(Program(function), torch.full((2, 3), -torch.inf))


def test_extremes_of_nan_are_nan() -> None:
    x = torch.tensor([[1.0, torch.nan, torch.inf], [-2.0, 3.0, -0.0]])
    agree_with_pytorch(Program(lambda x: (x.amax(1), x.min(), (-x).max(), F.elu(x))), x)


@pytest.mark.parametrize(
    "function", [torch.log1p, torch.expm1, torch.atanh, F.elu, F.softplus, F.logsigmoid]
)
def test_functions_are_exact_near_zero(function: Any) -> None:
    size = torch.logspace(-9, -0.1, 64)
    agree_with_pytorch(Program(function), torch.cat([size, -size]), close=1e-6, atol=0)


def test_softplus_is_exact_far_below_zero() -> None:
    agree_with_pytorch(Program(F.softplus), torch.linspace(-20, 20, 64), close=1e-6, atol=0)


def test_bfloat16_is_rounded_inside_a_loop_nest() -> None:
    x = torch.cat([normal(500), torch.tensor([torch.nan, torch.inf, 3.4e38, 1e-40])])
    agree_with_pytorch(Program(lambda x: (x.bfloat16().float() * 3 + 1,)), x, close=1e-7, atol=0)
    program = Program(lambda x: x * 3 + 1)
    narrow = x.bfloat16()
    made = tvmlab.compile(tvmlab.load(export(program, narrow)))(narrow)
    np.testing.assert_array_equal(made.astype("float32"), program(narrow).float().numpy())


def test_a_branch_that_is_chosen_at_run_time() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.amax(1) + 1, lambda a: a[:, 0] * 2, (x,))

    executable = tvmlab.compile(tvmlab.load(export(Program(choose), tensor(2, 3))))
    for x in (tensor(2, 3).abs(), -tensor(2, 3).abs()):
        np.testing.assert_allclose(executable(x), choose(x).numpy())


def test_an_output_that_is_none() -> None:
    ones, none = tvmlab.compile(tvmlab.load(export(Program(lambda x: (x, None)), tensor(2))))(
        tensor(2)
    )
    assert none is None
    np.testing.assert_array_equal(ones, tensor(2).numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_remainder_has_the_divisors_sign(dtype: Any) -> None:
    x = torch.tensor([1.0, -0.9, 5.0, torch.inf, 0.0, torch.nan], dtype=dtype)
    agree_with_pytorch(Program(lambda x: (x % 0.1, x % -0.1, 5.0 % x)), x)
