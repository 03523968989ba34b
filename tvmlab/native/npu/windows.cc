// The vector unit's window operations: depthwise convolutions, poolings, and sums over all pixels.
#include <algorithm>
#include <limits>

#include "rescale.h"

namespace tvmlab::npu {
namespace {

// Sums that wrap, hence in unsigned arithmetic.
TVMLAB_NPU_CLONES
void MultiplyAdd(const int32_t* x, const int32_t* weights, int64_t count, uint32_t* sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<uint32_t>(x[i] * weights[i]);
}

// The taps of a window that lie in the tile, and how many lie in the padded tile.
struct Taps {
  int64_t first, end, padded;

  Taps(const Axis& axis, int64_t output, int64_t pad_after) {
    // The first tap whose place is not below `place`.
    const auto until = [&](int64_t place) {
      const int64_t ahead = std::max<int64_t>(place - axis.At(output, 0), 0);
      return std::clamp<int64_t>(CeilDiv(ahead, axis.dilation), 0, axis.kernel);
    };
    first = until(0);
    end = std::max(first, until(axis.in));
    padded = until(axis.in + pad_after);
  }
  int64_t inside() const { return end - first; }
};

int64_t Lowest(Dtype dtype) {
  return dtype == Dtype::kUInt8 ? 0 : -(int64_t{1} << (8 * Bytes(dtype) - 1));
}

// The mean of a window before clipping: `sum` and `real` are those of the `inside` numbers in the
// tile, and `padded` numbers lie in the padded tile.
double Mean(const Pool& pool, int64_t sum, float real, int64_t inside, int64_t padded) {
  const int64_t counted = pool.count_pad ? padded : inside, count = std::max<int64_t>(counted, 1);
  if (pool.kind == PoolKind::kAverageOnnx) {
    const float mean = real / static_cast<float>(count) / FloatOf(pool.shift);
    return __builtin_rintf(mean + static_cast<float>(pool.out_zero));
  }
  if (pool.kind == PoolKind::kAverageTflite) {
    const int64_t over = count << pool.shift, less = sum - inside * pool.in_zero;
    const int64_t magnitude = (std::abs(less) * pool.multiplier + over / 2) / over;
    return static_cast<double>((less < 0 ? -magnitude : magnitude) + pool.out_zero);
  }
  // An empty window averages to the padding.
  const int64_t all = sum + (counted > 0 ? counted - inside : 1) * pool.out_zero;
  const int64_t half = pool.kind == PoolKind::kAverageHalf ? count / 2 : 0;
  const int64_t magnitude = (std::abs(all) + half) / count;
  return static_cast<double>(all < 0 ? -magnitude : magnitude);
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

void Machine::Execute(const Pool& pool) {
  const View in = pool.in, out = pool.out();
  const Axis rows = npu::Rows(pool), cols = npu::Cols(pool);
  const bool max = pool.kind == PoolKind::kMax;
  const bool real = pool.kind == PoolKind::kAverageOnnx;
  const float scale = FloatOf(pool.multiplier), most = std::numeric_limits<float>::max();
  const auto channels = static_cast<size_t>(in.channels);
  const auto low = static_cast<double>(Lowest(in.dtype));
  const double high = low + std::ldexp(1.0, static_cast<int>(8 * Bytes(in.dtype))) - 1;
  std::vector<int32_t> pixel(channels), result(channels);
  std::vector<int64_t> sums(channels);
  std::vector<float> reals(channels);  // rounded at each addition, like ONNX Runtime's sums
  for (int64_t y = 0; y < out.rows; ++y) {
    const Taps down(rows, y, pool.pad_bottom);
    for (int64_t x = 0; x < out.cols; ++x) {
      const Taps across(cols, x, pool.pad_right);
      std::fill(sums.begin(), sums.end(), 0);
      std::fill(reals.begin(), reals.end(), 0.0F);
      std::fill(result.begin(), result.end(), static_cast<int32_t>(Lowest(in.dtype)));
      for (int64_t i = down.first; i < down.end; ++i) {
        for (int64_t j = across.first; j < across.end; ++j) {
          Widen(Pixel(in, rows.At(y, i), cols.At(x, j)), in.dtype, in.channels, pixel.data());
          if (max) {
            for (size_t c = 0; c < channels; ++c) result[c] = std::max(result[c], pixel[c]);
          } else if (real) {
            for (size_t c = 0; c < channels; ++c) {
              const auto number = static_cast<float>(int64_t{pixel[c]} - pool.in_zero);
              reals[c] += std::clamp(number * scale, -most, most);
            }
          } else {
            for (size_t c = 0; c < channels; ++c) sums[c] += pixel[c];
          }
        }
      }
      for (size_t c = 0; !max && c < channels; ++c) {
        const double mean = Mean(pool, sums[c], reals[c], down.inside() * across.inside(),
                                 down.padded * across.padded);
        result[c] = Clip(mean, low, high);
      }
      Narrow(result.data(), out.dtype, in.channels, Pixel(out, y, x));
    }
  }
}

void Machine::Execute(const Sum& sum) {
  const View in = sum.in;
  uint32_t* sums = Sums(sum.sums);
  std::vector<int32_t> pixel(static_cast<size_t>(in.channels));
  if (!sum.accumulate) std::fill_n(sums, in.channels, static_cast<uint32_t>(sum.start));
  for (int64_t y = 0; y < in.rows; ++y) {
    for (int64_t x = 0; x < in.cols; ++x) {
      Widen(Pixel(in, y, x), in.dtype, in.channels, pixel.data());
      for (int64_t c = 0; c < in.channels; ++c) {
        sums[c] += static_cast<uint32_t>(std::max(pixel[static_cast<size_t>(c)], sum.low));
      }
    }
  }
}

}  // namespace tvmlab::npu
