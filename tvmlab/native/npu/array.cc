// The array: convolutions as products of matrices.
//
// Rows of the left matrix are output pixels, each the row of numbers that its window takes; those of
// the right one are what a number is multiplied by, for kBlock output channels. Both are float32:
// a product of two numbers of 8 bits has 16, so that float32, with 24, sums kChunk of them exactly,
// and processors multiply floats faster than integers. What comes out is added up in int32.
#include <algorithm>

#include "machine.h"
#include "refused.h"

namespace tvmlab::npu {
namespace {

constexpr int64_t kBlock = 16;
constexpr int64_t kChunk = 512;  // 512 * 255 * 128 < 2^24
constexpr int64_t kTile = 6;     // pixels whose sums are in registers at once

// sums[p][0..15] = rows[p][0..count) * weights[0..count)[0..15], for kTile pixels.
TVMLAB_NPU_CLONES
void Multiply(const float* const* rows, const float* weights, int64_t count, float* sums) {
  float sum[kTile][kBlock] = {};
  const float *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3], *r4 = rows[4],
              *r5 = rows[5];
  for (int64_t k = 0; k < count; ++k, weights += kBlock) {
    for (int64_t c = 0; c < kBlock; ++c) {
      sum[0][c] += r0[k] * weights[c];
      sum[1][c] += r1[k] * weights[c];
      sum[2][c] += r2[k] * weights[c];
      sum[3][c] += r3[k] * weights[c];
      sum[4][c] += r4[k] * weights[c];
      sum[5][c] += r5[k] * weights[c];
    }
  }
  std::memcpy(sums, sum, sizeof sum);
}

}  // namespace

// The row of numbers that an output pixel's window takes, [kernel_h, kernel_w, channels].
static void Gather(const uint8_t* sram, const Matmul& m, int64_t y, int64_t x, float* to) {
  const View in = Input(m);
  const Axis rows = Rows(m), cols = Cols(m);
  for (int64_t i = 0; i < m.kernel_h; ++i) {
    for (int64_t j = 0; j < m.kernel_w; ++j, to += m.channels) {
      const int64_t row = rows.At(y, i), col = cols.At(x, j);
      if (rows.Inside(row) && cols.Inside(col)) {
        const int64_t at = in.address + row * in.row_stride + col * in.pixel_stride;
        Widen(sram + at, in.dtype, m.channels, to);
      } else {
        std::fill_n(to, m.channels, static_cast<float>(m.pad_value));
      }
    }
  }
}

// Weights int8 [blocks of `columns`, depth, columns] to float [blocks of kBlock, depth, kBlock].
static std::vector<float> Repack(const int8_t* weights, int64_t depth, int64_t channels,
                                 int64_t columns) {
  const int64_t blocks = CeilDiv(channels, kBlock);
  std::vector<float> packed(static_cast<size_t>(blocks * depth * kBlock));
  for (int64_t c = 0; c < channels; ++c) {
    const int8_t* from = weights + c / columns * depth * columns + c % columns;
    float* to = packed.data() + c / kBlock * depth * kBlock + c % kBlock;
    for (int64_t k = 0; k < depth; ++k) to[k * kBlock] = from[k * columns];
  }
  return packed;
}

void Machine::Execute(const Matmul& m) {
  const int64_t depth = int64_t{m.kernel_h} * m.kernel_w * m.channels;
  const int64_t pixels = int64_t{m.out_rows} * m.out_cols, channels = m.out_channels;
  const auto weights = Repack(reinterpret_cast<const int8_t*>(&sram_[static_cast<size_t>(m.weights)]),
                              depth, channels, program_.config.columns);
  uint32_t* sums = Sums(m.sums);
  if (m.bias >= 0) {
    const auto bias = Table<uint32_t>(m.bias, channels);
    for (int64_t p = 0; p < pixels; ++p) std::copy(bias.begin(), bias.end(), sums + p * channels);
  }
  std::vector<float> gathered(static_cast<size_t>(kTile * depth));
  for (int64_t first = 0; first < pixels; first += kTile) {
    const int64_t tile = std::min(kTile, pixels - first);
    const float* rows[kTile];
    for (int64_t p = 0; p < kTile; ++p) {
      float* row = gathered.data() + std::min(p, tile - 1) * depth;
      rows[p] = row;
      if (p < tile) {
        Gather(sram_.data(), m, (first + p) / m.out_cols, (first + p) % m.out_cols, row);
      }
    }
    for (int64_t c = 0; c < channels; c += kBlock) {
      const int64_t width = std::min(kBlock, channels - c);
      for (int64_t k = 0; k < depth; k += kChunk) {
        const float* at[kTile];
        for (int64_t p = 0; p < kTile; ++p) at[p] = rows[p] + k;
        float products[kTile * kBlock];
        Multiply(at, weights.data() + (c * depth) + k * kBlock, std::min(kChunk, depth - k),
                 products);
        for (int64_t p = 0; p < tile; ++p) {
          uint32_t* to = sums + (first + p) * channels + c;
          for (int64_t i = 0; i < width; ++i) {
            to[i] += static_cast<uint32_t>(static_cast<int32_t>(products[p * kBlock + i]));
          }
        }
      }
    }
  }
}

}  // namespace tvmlab::npu
