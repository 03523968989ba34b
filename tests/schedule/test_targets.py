"""Register tiles, dot products and prefetches for fixed processors: results, and assembly."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import tvm
from tvm import relax

import tvmlab
from tests.oracles.models import array
from tests.schedule.convolutions import Conv
from tests.schedule.dot import Quantized, QuantizedConv, QuantizedDense, Requantized
from tests.schedule.kernels import Op, module, wrong
from tvmlab.errors import TargetError
from tvmlab.schedule import Machine, Tile
from tvmlab.support.host import missing_features


def assembly(run: tvmlab.Executable) -> str:
    """Find the module of LLVM's among those that the executable imports."""
    modules = [run.vm_executable.mod]
    for one in modules:
        modules += list(one.imports)
        if one.kind == "llvm":
            return str(one.inspect_source("asm"))
    raise LookupError("no module of LLVM's")


def inner_loops(text: str) -> list[list[str]]:
    """List the bodies of loops without a loop inside: from a label to the jump back to it."""
    lines = text.splitlines()
    label = re.compile(r"^\.L\w+:|^\.LBB\w+:")
    found, start, name = [], 0, ""
    for i, line in enumerate(lines):
        if label.match(line):
            start, name = i, line.split(":")[0]
        elif name and re.match(rf"\s+(j\w+|b\.\w+|b|cbn?z|tbn?z)\b.*{re.escape(name)}$", line):
            found.append(lines[start + 1 : i])
    return found


X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
CONV = QuantizedConv(
    dtypes=("int8", "int8"),
    zeros=(-128, 0),
    batch=1,
    size=(9, 9),
    kernel=(3, 3),
    strides=(1, 1),
    pads=(1, 1, 1, 1),
    dilation=(1, 1),
    groups=1,
    inputs=10,
    outputs=40,
)
WIDE = replace(CONV, zeros=(127, 5), dtypes=("int8", "uint8"))

CASES: list[Quantized] = [
    CONV,
    WIDE,
    replace(CONV, dtypes=("uint8", "int8"), zeros=(255, 0), strides=(2, 1), inputs=3),
    replace(CONV, dtypes=("uint8", "uint8"), zeros=(0, 128), kernel=(1, 1), pads=(0, 0, 0, 0)),
    replace(CONV, groups=40, inputs=1, outputs=1),
    replace(CONV, groups=3, inputs=5, outputs=20),
    QuantizedDense(dtypes=("int8", "int8"), zeros=(3, 0), left=(5, 33), units=21),
    QuantizedDense(dtypes=("uint8", "uint8"), zeros=(3, 250), left=(5, 33), units=21),
    Requantized(**vars(replace(CONV, outputs=64))),
    Requantized(**vars(replace(CONV, groups=40, inputs=1, outputs=1))),
]
#: Target: its instructions for int8 weights, and for what needs int16.
TARGETS = {
    "cascadelake": (X86, r"vpdpbusd\s.*%zmm", r"vpmaddwd|vpdpwssd\s.*%zmm"),
    "alderlake": (X86, r"\{vex\}\s+vpdpbusd\s.*%ymm", r"vpmaddwd|vpdpwssd\s.*%ymm"),
    "x86-64-v3": (X86, r"vpmaddwd\s.*%ymm", r"vpmaddwd\s.*%ymm"),
    "x86-64": (X86, r"pmaddwd\s.*%xmm", r"pmaddwd\s.*%xmm"),
    "neoverse-n1": (ARM, r"sdot\s+v\d+\.4s, v\d+\.16b", r"smlal2?\s+v\d+\.4s"),
    "cortex-a72": (ARM, r"smlal2?\s+v\d+\.4s", r"smlal2?\s+v\d+\.4s"),
}


def target(cpu: str) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mtriple": TARGETS[cpu][0], "mcpu": cpu})


@pytest.mark.parametrize("cpu", [cpu for cpu, (triple, *_) in TARGETS.items() if triple == X86])
def test_every_kernel_is_exact(cpu: str) -> None:
    if missing := missing_features(target(cpu)):
        pytest.skip(f"this processor lacks {missing}")
    assert not wrong(CASES, target=target(cpu))


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("wide", [False, True])
def test_the_processors_instruction_is_used(cpu: str, wide: bool) -> None:
    mod, _ = module([replace(WIDE if wide else CONV, size=(28, 28), inputs=64, outputs=64)])
    run = tvmlab.compile(mod, target(cpu))
    assert not run.summary().unscheduled
    pattern = re.compile(TARGETS[cpu][1 + wide])
    body = max(inner_loops(assembly(run)), key=lambda b: sum(bool(pattern.search(x)) for x in b))
    assert sum(bool(pattern.search(line)) for line in body) >= 8
    spills = [line for line in body if re.search(r"mm\d+, \d*\(%r[sb]p\)|\bq\d+, \[sp\b", line)]
    assert not spills


def test_what_follows_the_sums_is_vectors_of_32_bits() -> None:
    """The requantization is in the tile; no 64-bit product, which takes three instructions each."""
    mod, _ = module([Requantized(**vars(replace(CONV, inputs=64, outputs=64)))])
    run = tvmlab.compile(mod, target("cascadelake"))
    assert [kernel.rule for kernel in run.summary().kernels] == ["Contraction"]
    text = assembly(run)
    assert re.search(r"vpmuldq\s.*%zmm", text)
    assert re.search(r"vpmovsdb\s+%zmm", text)
    assert "vpmullq" not in text


#: Target: how a multiply-add and its register read.
FLOAT_TARGETS = {
    "x86-64-v2": (X86, r"mulps\s.*%xmm"),
    "x86-64-v3": (X86, r"vfmadd\d+ps\s.*%ymm"),
    "skylake-avx512": (X86, r"vfmadd\d+ps\s.*%zmm"),
    "cortex-a72": (ARM, r"fmla\s+v\d+\.4s"),
}


def float_target(cpu: str) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mtriple": FLOAT_TARGETS[cpu][0], "mcpu": cpu})


def test_a_name_is_no_target() -> None:
    with pytest.raises(TargetError, match="'x86-64-v3' is not a target"):
        Machine.of("x86-64-v3")  # type: ignore[arg-type]


FLOAT = Conv(1, (28, 28), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 128, 128, ("bias", "relu"))


@pytest.mark.parametrize("cpu", FLOAT_TARGETS)
def test_the_inner_loop_is_multiply_adds_in_registers(cpu: str) -> None:
    # Before the last step: the products of squares are the same loops, but of another size.
    run = tvmlab.compile(module([FLOAT])[0], float_target(cpu), schedule="epilogue")
    assert run.summary().unscheduled == ()
    pattern = re.compile(FLOAT_TARGETS[cpu][1])
    body = max(inner_loops(assembly(run)), key=lambda b: sum(bool(pattern.search(x)) for x in b))
    found = sum(bool(pattern.search(line)) for line in body)
    machine = Machine.of(float_target(cpu))
    tile = Tile.ranked(28, 28, 128, 9 * 128, 4 * 128, "float32", machine)[0]
    sums = tile.rows * tile.columns * tile.channels // machine.lanes("float32")
    assert sums >= machine.registers // 2
    assert found >= sums
    assert found % sums == 0  # the loop over the inputs is unrolled a whole number of times
    vectors = [line for line in body if re.search(r"%[xyz]mm|\bv\d+\.|\bq\d+", line)]
    spills = [line for line in vectors if re.search(r"\(%r[sb]p\)|\[sp\b|\[x29\b", line)]
    assert not spills


def test_other_kinds_of_target_are_upstreams() -> None:
    run = tvmlab.compile(module([FLOAT])[0], {"kind": "cuda", "arch": "sm_80"})
    assert run.summary().kernels == ()  # no rule of ours saw a function


INT8 = replace(CONV, dtypes=("uint8", "int8"), zeros=(3, 0), size=(7, 7), inputs=256, outputs=256)


def test_weights_are_fetched_while_sums_run() -> None:
    run = tvmlab.compile(module([INT8])[0], target("cascadelake"))
    assert not run.summary().unscheduled
    bodies = inner_loops(assembly(run))
    fetching = [body for body in bodies if any("prefetch" in line for line in body)]
    assert fetching
    # The instruction does not keep the sums from staying in registers.
    for body in fetching:
        assert sum("vpdpbusd" in line for line in body) >= 14
        assert not [line for line in body if "(%rsp)" in line and "mm" in line]


def test_sums_stay_in_registers_while_the_next_chunk_is_fetched() -> None:
    late = Conv(1, (7, 7), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 512, 512)
    text = assembly(tvmlab.compile(module([late])[0], float_target("skylake-avx512")))
    assert "prefetch" in text
    bodies = [body for body in inner_loops(text) if sum("vfmadd" in line for line in body) >= 14]
    assert bodies
    for body in bodies:  # LLVM would store all sums before each prefetch
        assert not [line for line in body if re.search(r"prefetch|vmov\w+\s+%zmm\d+, .*\(", line)]


@pytest.mark.parametrize(
    "case",
    [
        replace(INT8, inputs=32, outputs=32),  # weights that stay in the cache
        replace(INT8, batch=2),  # another picture reads them again
    ],
)
def test_others_do_not_fetch(case: QuantizedConv) -> None:
    assert "prefetch" not in assembly(tvmlab.compile(module([case])[0], target("cascadelake")))


def test_the_last_rows_of_a_product_have_a_tile_of_their_own() -> None:
    weight = relax.const(array(64, 96, seed=1))
    product = Op("rows", ((197, 64),), lambda x: relax.op.matmul(x, weight), id)
    text = assembly(tvmlab.compile(module([product])[0], float_target("skylake-avx512")))
    assert "AllocWorkspace" not in text  # the sums are in registers, or on the stack
    sums = [sum("vfmadd" in line for line in body) for body in inner_loops(text)]
    machine = Machine.of(float_target("skylake-avx512"))
    tile = Tile.ranked(1, 197, 96, 64, 256, "float32", machine)[0]
    vectors = tile.channels // machine.lanes("float32")
    assert 197 % tile.columns
    assert {tile.columns * vectors, 197 % tile.columns * vectors} <= {*sums}
