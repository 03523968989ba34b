// The accelerator's instructions, field by field in the order of tvmlab/npu/isa.py, which documents
// them. All fields have 32 bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

namespace tvmlab::npu {

enum class Unit { kDma, kArray, kVector, kAll };
enum class Dtype : int32_t { kInt8, kUInt8, kInt16, kInt32 };
enum class Rounding : int32_t { kNone, kUpward, kToNearest, kTflite, kOnnx, kTfliteFloat64 };
enum class PoolKind : int32_t { kMax, kAverage, kAverageHalf, kAverageTflite, kAverageOnnx };

constexpr int64_t Bytes(Dtype dtype) {
  return dtype == Dtype::kInt32 ? 4 : dtype == Dtype::kInt16 ? 2 : 1;
}

// Four nested strides, the outermost first, over pieces of `run` bytes.
struct Box {
  std::array<int32_t, 4> counts, strides;
  int64_t run;

  // The same bytes, with a longer run where inner dimensions are contiguous.
  Box Joined() const {
    Box joined = *this;
    for (size_t i = 4; i-- > 0 && (counts[i] == 1 || strides[i] == joined.run);) {
      joined.run *= counts[i];
      joined.counts[i] = 1;
    }
    return joined;
  }
  int64_t Runs() const { return int64_t{counts[0]} * counts[1] * counts[2] * counts[3]; }
};

// An image in SRAM.
struct Strided {
  int32_t address, row_stride, pixel_stride;
  Dtype dtype;
};
struct View : Strided {
  int32_t rows, cols, channels;

  Box box() const {
    return {{1, 1, rows, cols}, {0, 0, row_stride, pixel_stride}, channels * Bytes(dtype)};
  }
  int64_t bytes() const { return Bytes(dtype) * rows * cols * channels; }
};

struct Transfer {
  int32_t layer, tensor, offset, address, element;
  std::array<int32_t, 4> counts, dram_strides, sram_strides;

  Box dram() const { return {counts, dram_strides, element}; }
  Box sram() const { return {counts, sram_strides, element}; }
  int64_t bytes() const { return element * dram().Runs(); }
};
struct Load : Transfer {};
struct Store : Transfer {};

struct Window {
  int32_t layer;
  View in;
  int32_t pad_top, pad_left, pad_value, weights, kernel_h, kernel_w, stride_h, stride_w;
  int32_t dilation_h, dilation_w, out_rows, out_cols, out_channels, sums, bias;
};
struct Matmul : Window {};
struct Depthwise : Window {
  Dtype weight_dtype;
};

struct Requantize {
  int32_t layer, sums, rows, cols, channels, sum_low, sum_high;
  Rounding rounding;
  int32_t multipliers, shifts, per_channel, zero_point, low, high;
  Strided to;

  View out() const { return {to, rows, cols, channels}; }
  int64_t tables() const { return per_channel ? channels : 1; }
};

struct Add {
  struct Side {
    Strided view;
    int32_t zero;
    Rounding rounding;
    int32_t multiplier, shift;
  };
  int32_t layer, rows, cols, channels;
  Side lhs, rhs;
  int32_t left_shift;
  Rounding out_rounding;
  int32_t out_multiplier, out_shift, out_zero, low, high;
  Strided to;

  View image(const Strided& view) const { return {view, rows, cols, channels}; }
  bool both() const { return rhs.view.address >= 0; }
};

struct Pool {
  int32_t layer;
  PoolKind kind;
  View in;
  int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
  int32_t pad_top, pad_left, pad_bottom, pad_right, count_pad, in_zero, out_zero;
  int32_t multiplier, shift, out_rows, out_cols, out_address, out_row_stride, out_pixel_stride;

  View out() const {
    return {
        {out_address, out_row_stride, out_pixel_stride, in.dtype}, out_rows, out_cols, in.channels};
  }
};

struct Sum {
  int32_t layer;
  View in;
  int32_t low, start, accumulate, sums;
};

struct Sync {
  int32_t layer;
};

// In the order of their opcodes, which begin at 1.
using Instruction = std::variant<Load, Store, Matmul, Depthwise, Requantize, Add, Pool, Sum, Sync>;
constexpr const char* kNames[] = {"Load", "Store", "Matmul", "Depthwise", "Requantize",
                                  "Add",  "Pool",  "Sum",    "Sync"};

// One dimension of a window: the input position that an output reads for a tap.
struct Axis {
  int64_t in, out, kernel, stride, dilation, pad;

  int64_t At(int64_t output, int64_t tap) const { return output * stride + tap * dilation - pad; }
  bool Inside(int64_t place) const { return place >= 0 && place < in; }
};

template <typename Window>  // Matmul, Depthwise, Pool
Axis Rows(const Window& w) {
  return {w.in.rows, w.out_rows, w.kernel_h, w.stride_h, w.dilation_h, w.pad_top};
}
template <typename Window>
Axis Cols(const Window& w) {
  return {w.in.cols, w.out_cols, w.kernel_w, w.stride_w, w.dilation_w, w.pad_left};
}

}  // namespace tvmlab::npu
