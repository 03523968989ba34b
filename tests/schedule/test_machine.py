"""Register tiles and targets: properties of the choice, and assembly for fixed processors."""

from __future__ import annotations

import re

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

import tvmlab
from tests.oracles.models import array
from tests.oracles.networks import relative_error
from tests.schedule.assembly import assembly, inner_loops
from tests.schedule.convolutions import Conv
from tests.schedule.kernels import module
from tvmlab.errors import TargetError
from tvmlab.schedule import Machine, Tile
from tvmlab.support.host import missing_features

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
#: Target: vector bytes, registers (one less where the product needs it), and how a multiply-add and
#: its register read.
TARGETS = {
    "x86-64-v2": (X86, 16, 15, r"mulps\s.*%xmm"),
    "x86-64-v3": (X86, 32, 16, r"vfmadd\d+ps\s.*%ymm"),
    "skylake-avx512": (X86, 64, 32, r"vfmadd\d+ps\s.*%zmm"),
    "cortex-a72": (ARM, 16, 32, r"fmla\s+v\d+\.4s"),
}


def target(cpu: str) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mtriple": TARGETS[cpu][0], "mcpu": cpu})


@pytest.mark.parametrize("cpu", TARGETS)
def test_vectors_and_registers_follow_from_the_target(cpu: str) -> None:
    machine = Machine.of(target(cpu))
    assert (machine.vector_bytes, machine.registers) == TARGETS[cpu][1:3]
    assert machine.lanes("float32") == machine.vector_bytes // 4
    assert machine.lanes("float64") * 2 == machine.lanes("float32")
    assert machine.lanes("int8") == machine.vector_bytes


def test_threads_are_the_targets_cores() -> None:
    spec = {"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": X86, "num-cores": 7}
    assert Machine.of(tvm.target.Target(spec)).threads == 7
    assert Machine.of(target("x86-64-v3")).threads >= 1


def test_a_name_is_no_target() -> None:
    with pytest.raises(TargetError, match="'x86-64-v3' is no target"):
        Machine.of("x86-64-v3")  # type: ignore[arg-type]


@given(
    height=st.integers(1, 300),
    width=st.integers(1, 300),
    channels=st.integers(1, 3000),
    steps=st.integers(1, 5000),
    apart=st.integers(1, 20000),
    dtype=st.sampled_from(["float32", "float64", "int32"]),
    machine=st.sampled_from(
        [Machine(16, 16, 1), Machine(32, 16, 2), Machine(64, 32, 64), Machine(16, 32, 4)]
    ),
)
def test_a_tile_fits_the_registers(
    height: int,
    width: int,
    channels: int,
    steps: int,
    apart: int,
    dtype: str,
    machine: Machine,
) -> None:
    tile = Tile.ranked(height, width, channels, steps, apart, dtype, machine)[0]
    lanes = machine.lanes(dtype)
    vectors, rest = divmod(tile.channels, lanes)
    assert rest == 0
    assert 1 <= tile.rows <= height
    assert 1 <= tile.columns <= width
    assert 1 <= vectors <= -(-channels // lanes)
    # The sums, the vectors of weights (one for a single pixel), one number of the data.
    pixels = tile.rows * tile.columns
    assert pixels * vectors + (vectors if pixels > 1 else 1) + 1 <= machine.registers
    assert tile == Tile.ranked(height, width, channels, steps, apart, dtype, machine)[0]


CONV = Conv(1, (28, 28), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 128, 128, ("bias", "relu"))


@pytest.mark.parametrize("cpu", TARGETS)
def test_the_inner_loop_is_multiply_adds_in_registers(cpu: str) -> None:
    # Before the last step: the products of squares are the same loops, but of another size.
    run = tvmlab.compile(module([CONV])[0], target(cpu), schedule="epilogue")
    assert run.summary().unscheduled == ()
    pattern = re.compile(TARGETS[cpu][3])
    body = max(inner_loops(assembly(run)), key=lambda b: sum(bool(pattern.search(x)) for x in b))
    found = sum(bool(pattern.search(line)) for line in body)
    machine = Machine.of(target(cpu))
    tile = Tile.ranked(28, 28, 128, 9 * 128, 4 * 128, "float32", machine)[0]
    sums = tile.rows * tile.columns * tile.channels // machine.lanes("float32")
    assert sums >= machine.registers // 2
    assert found >= sums
    assert found % sums == 0  # the loop over the inputs is unrolled a whole number of times
    vectors = [line for line in body if re.search(r"%[xyz]mm|\bv\d+\.|\bq\d+", line)]
    spills = [line for line in vectors if re.search(r"\(%r[sb]p\)|\[sp\b|\[x29\b", line)]
    assert not spills


def test_code_for_an_older_processor_runs() -> None:
    if not missing_features(target("x86-64-v3")):
        x = array(*CONV.data_shape)
        result = tvmlab.compile(module([CONV])[0], target("x86-64-v3"))(x)
        assert relative_error(result, CONV.reference()) < 1e-4


def test_other_kinds_of_target_are_upstreams() -> None:
    run = tvmlab.compile(module([CONV])[0], {"kind": "cuda", "arch": "sm_80"})
    assert run.summary().kernels == ()  # no rule of ours saw a function
