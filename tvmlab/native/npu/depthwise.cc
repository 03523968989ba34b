// A convolution of each channel by itself, on the vector unit.
#include <algorithm>

#include "machine.h"

namespace tvmlab::npu {
namespace {

// Sums that wrap, so in unsigned arithmetic.
TVMLAB_NPU_CLONES
void MultiplyAdd(const int32_t* x, const int32_t* weights, int64_t count, uint32_t* sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<uint32_t>(x[i] * weights[i]);
}

}  // namespace

void Machine::Execute(const Depthwise& d) {
  const Axis rows = npu::Rows(d), cols = npu::Cols(d);
  const auto channels = static_cast<size_t>(d.in.channels);
  std::vector<int32_t> weights(static_cast<size_t>(d.kernel_h) * d.kernel_w * channels);
  Widen(&sram_[static_cast<size_t>(d.weights)], d.weight_dtype,
        static_cast<int64_t>(weights.size()), weights.data());
  std::vector<uint32_t> bias;
  if (d.bias >= 0) bias = Table<uint32_t>(d.bias, d.in.channels);
  const std::vector<int32_t> padding(channels, d.pad_value);
  std::vector<int32_t> pixel(channels);
  uint32_t* sums = Sums(d.sums);
  for (int64_t y = 0; y < d.out_rows; ++y) {
    for (int64_t x = 0; x < d.out_cols; ++x, sums += channels) {
      if (d.bias >= 0) std::copy(bias.begin(), bias.end(), sums);
      const int32_t* tap = weights.data();
      for (int64_t i = 0; i < d.kernel_h; ++i) {
        for (int64_t j = 0; j < d.kernel_w; ++j, tap += channels) {
          const int64_t row = rows.At(y, i), col = cols.At(x, j);
          const bool inside = rows.Inside(row) && cols.Inside(col);
          if (inside) Widen(Pixel(d.in, row, col), d.in.dtype, d.in.channels, pixel.data());
          MultiplyAdd(inside ? pixel.data() : padding.data(), tap, d.in.channels, sums);
        }
      }
    }
  }
}

}  // namespace tvmlab::npu
