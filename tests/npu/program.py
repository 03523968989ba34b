"""A program in which every instruction of the accelerator has its part."""

from __future__ import annotations

import numpy as np

from tests.npu.cases import move
from tvmlab.npu import isa
from tvmlab.npu.config import Config
from tvmlab.npu.program import Dram, Kind, Program

#: The input: 6 by 6 pixels of 4 channels. In SRAM from 0; what is made of it from 4096.
INPUT = (6, 6, 4)
TABLES, MADE = 1024, 4096


def small_network():
    """Convolution, depthwise convolution, addition, pooling, mean, and a result for each.

    Returns
    -------
    Program
        One input, uint8 of shape `INPUT`; two outputs: uint8 [3, 3, 4] and [4].
    """
    u8, s8 = int(isa.Dtype.uint8), int(isa.Dtype.int8)
    rng = np.random.default_rng(5)
    constants, places = b"", {}
    for name, numbers in {
        "weights": rng.integers(-128, 128, (3, 3, 4, 16), np.int8),
        "bias": rng.integers(-999, 999, 16, np.int32),
        "taps": rng.integers(-128, 128, (3, 3, 4), np.int8),
        "multipliers": rng.integers(1 << 30, (1 << 31) - 1, 4, np.int32),
        "shifts": np.full(4, -8, np.int32),
        "floats": rng.uniform(0.001, 0.01, 4).astype(np.float32),
        "doubles": rng.uniform(0.001, 0.01, 1),
    }.items():
        places[name] = TABLES + len(constants)
        constants += numbers.tobytes()
    image = (24, 4, u8, 6, 6, 4, 1, 1, 7)
    window = (3, 3, 1, 1, 1, 1, 6, 6, 4)
    every = (-(2**31), 2**31 - 1)
    side = (24, 4, u8, 3, int(isa.Rounding.TFLITE), 1 << 30, -1)
    floats = int(isa.Rounding.ONNX), places["floats"], 0, 1
    ints = int(isa.Rounding.UPWARD), places["multipliers"], places["shifts"], 1
    double = int(isa.Rounding.TFLITE_FLOAT64), places["doubles"], 0, 0
    instructions = (
        isa.Load(0, 0, 0, 0, 4, 1, 1, 6, 6, 0, 0, 24, 4, 0, 0, 24, 4),
        move(isa.Load, 1, TABLES, len(constants)),
        isa.Sync(0),
        isa.Matmul(0, 0, *image, places["weights"], *window, 0, places["bias"]),
        isa.Depthwise(1, 0, *image, places["taps"], *window, 200, places["bias"], s8),
        isa.Sync(0),
        isa.Requantize(0, 0, 6, 6, 4, *every, *ints, 3, 0, 255, MADE, 24, 4, u8),
        isa.Requantize(1, 200, 6, 6, 4, *every, *floats, 3, 0, 255, MADE + 200, 24, 4, u8),
        isa.Add(
            *(2, 6, 6, 4, MADE, *side, MADE + 200, *side, 20, int(isa.Rounding.TFLITE)),
            *(1 << 30, -18, 3, 0, 255, MADE, 24, 4, u8),
        ),
        isa.Pool(
            *(3, int(isa.PoolKind.AVERAGE_TFLITE), MADE, 24, 4, u8, 6, 6, 4, 3, 3, 2, 2, 1, 1),
            *(1, 1, 1, 1, 0, 3, 5, 1 << 30, 31, 3, 3, MADE + 400, 12, 4),
        ),
        isa.Sum(4, MADE + 400, 12, 4, u8, 3, 3, 4, 0, -27, 0, 400),
        isa.Requantize(4, 400, 1, 1, 4, *every, *double, 3, 0, 255, MADE + 500, 4, 4, u8),
        isa.Sync(4),
        move(isa.Store, 4, MADE + 400, 36),
        move(isa.Load, 4, 0, 36),
        move(isa.Store, 2, MADE + 400, 36),
        move(isa.Store, 3, MADE + 500, 4),
    )
    tensors = (
        Dram(Kind.INPUT, isa.Dtype.uint8, INPUT),
        Dram(Kind.CONSTANTS, isa.Dtype.uint8, (len(constants),)),
        Dram(Kind.OUTPUT, isa.Dtype.uint8, (3, 3, 4)),
        Dram(Kind.OUTPUT, isa.Dtype.uint8, (4,)),
        Dram(Kind.SCRATCH, isa.Dtype.uint8, (36,)),
    )
    layers = ("convolution", "depthwise", "add", "pool", "mean")
    config = Config(sram_bytes=8192, accumulators=512)
    return Program(config, tensors, layers, instructions, constants)
