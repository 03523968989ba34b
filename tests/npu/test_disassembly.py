"""Programs as text."""

from __future__ import annotations

from tests.npu.program import small_network
from tvmlab.npu.program import disassemble

GOLDEN = """\
machine: 16x16 array, 16 lanes, 8,192 bytes of SRAM, 512 accumulators
tensor input0: uint8 6x6x4
tensor constants: uint8 732
tensor output0: uint8 3x3x4
tensor output1: uint8 4
tensor scratch0: uint8 36
phase 0
  convolution
    dma    load input0+0x0 -> 0x0, 6x6 of 4 bytes
    dma    load constants+0x0 -> 0x400, 732 of 1 byte
phase 1
  convolution
    array  matmul 0x0 6x6x4 uint8, window 3x3 pad 1x1, weights 0x400, bias 0x640 -> sums 0 6x6x4
  depthwise
    vector depthwise 0x0 6x6x4 uint8, window 3x3 pad 1x1, weights 0x680, bias 0x640 -> sums 200 \
6x6x4
phase 2
  convolution
    vector requantize sums 0 6x6x4 -> 0x1000 uint8, UPWARD by channel at 0x6a4 + 3, clip 0..255
  depthwise
    vector requantize sums 200 6x6x4 -> 0x10c8 uint8, ONNX by channel at 0x6c4 + 3, clip 0..255
  add
    vector add 0x1000 uint8 + 0x10c8 uint8, 6x6x4 -> 0x1000 uint8, TFLITE, clip 0..255
  pool
    vector pool average_tflite 0x1000 6x6x4, window 3x3 stride 2x2 pad 1x1 -> 0x1190 3x3x4
  mean
    vector sum 0x1190 3x3x4 -> sums 400
    vector requantize sums 400 1x1x4 -> 0x11f4 uint8, TFLITE_FLOAT64 by one at 0x6d4 + 3, clip \
0..255
phase 3
  convolution
    dma    store 0x1190 -> scratch0+0x0, 36 of 1 byte
    dma    load scratch0+0x0 -> 0x0, 36 of 1 byte
    dma    store 0x1190 -> output0+0x0, 36 of 1 byte
    dma    store 0x11f4 -> output1+0x0, 4 of 1 byte
"""


def test_a_program_as_text() -> None:
    assert disassemble(small_network()) == GOLDEN
