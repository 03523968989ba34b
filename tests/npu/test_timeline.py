"""When instructions begin and end: made of the simulator's own counts."""

from __future__ import annotations

import pytest

from tvmlab.errors import TvmlabError
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Dtype, Instruction, Load, Matmul, Requantize, Rounding, Store, Sync, Unit
from tvmlab.npu.program import Dram, Kind, Program
from tvmlab.npu.simulator import count
from tvmlab.npu.timeline import phases

LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1


def move(kind: type[Load] | type[Store], tensor: int, address: int, size: int) -> Instruction:
    return kind(1, tensor, 0, address, 1, 1, 1, 1, size, 0, 0, 0, 1, 0, 0, 0, 1)


def program(*, last_sync: bool = True) -> Program:
    """One pixel of 16 channels times 16 x 16 weights, the next weights loaded meanwhile."""
    product = Matmul(
        0, 0, 16, 16, Dtype.int8, 1, 1, 16, 0, 0, 0, 64, 1, 1, 1, 1, 1, 1, 1, 1, 16, 0, 320
    )
    scale = (LOWEST, HIGHEST, Rounding.NONE, 0, 0, 0, 0, LOWEST, HIGHEST)
    ready = Requantize(0, 0, 1, 1, 16, *scale, 0, 64, 64, Dtype.int32)
    steps = [
        *(move(Load, 0, 0, 16), move(Load, 1, 64, 320), Sync(0)),
        *(product, move(Load, 1, 512, 320), Sync(0)),
        *(ready, Sync(0)),
        move(Store, 2, 0, 64),
        *([Sync(0)] * last_sync),
    ]
    tensors = (
        Dram(Kind.INPUT, Dtype.int8, (1, 16)),
        Dram(Kind.CONSTANTS, Dtype.uint8, (320,)),
        Dram(Kind.OUTPUT, Dtype.int32, (1, 16)),
    )
    return Program(Config(), tensors, ("product", "moves"), tuple(steps), bytes(320))


def test_every_instruction_has_its_place() -> None:
    found = phases(program())
    assert [len(phase.work) for phase in found] == [2, 2, 1, 1]
    work = [busy for phase in found for busy in phase.work]
    instructions = program().instructions
    assert [busy.index for busy in work] == [0, 1, 3, 4, 6, 8]
    assert all(busy.kind == type(instructions[busy.index]).__name__ for busy in work)
    assert all(busy.unit == instructions[busy.index].unit for busy in work)
    # Two loads in a row: latency and bytes of 32 a burst; then one load during the product.
    assert [(busy.start, busy.end) for busy in work[:2]] == [(0, 66), (66, 66 + 64 + 20)]
    start = found[0].end
    assert start == 150 + 1
    assert (work[2].start, work[3].start) == (start, start)
    assert found[1].end == start + max(found[1].cycles(Unit.ARRAY), found[1].cycles(Unit.DMA)) + 1


@pytest.mark.parametrize("last_sync", [True, False])
def test_it_is_as_long_as_the_simulator_says(last_sync: bool) -> None:
    made = program(last_sync=last_sync)
    found, counted = phases(made), count(made.to_bytes())
    assert found[-1].end == sum(layer["cycles"] for layer in counted)
    for unit in (Unit.DMA, Unit.ARRAY, Unit.VECTOR):
        cycles = sum(phase.cycles(unit) for phase in found)
        assert cycles == sum(layer[f"{unit.name.lower()}_cycles"] for layer in counted) > 0


def test_a_program_that_the_machine_refuses_has_no_timeline() -> None:
    made = program()
    outside = Program(
        made.config, made.tensors, made.layers, (move(Load, 0, 1 << 20, 16),), made.constants
    )
    with pytest.raises(TvmlabError):
        phases(outside)
