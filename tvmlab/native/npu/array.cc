// The array: convolutions as products of matrices.
//
// A row of the left matrix holds the inputs of one output pixel's window. A column of the right one
// holds the weights of one output channel. Both are float32. A product of two 8-bit numbers has 16
// bits, so float32, with 24, sums kChunk of them exactly, and processors multiply floats
// faster than integers. The partial sums are accumulated in int32, which wraps.
#include <algorithm>

#include "machine.h"

namespace tvmlab::npu {
namespace {

constexpr int64_t kChunk = 512;
static_assert(kChunk * 255 * 128 < 1 << 24);
constexpr int64_t kGathered = 1 << 16;  // numbers of the left matrix at a time: they stay in cache

// The rows of some output pixels, [pixels][kernel_h][kernel_w][channels].
class Gather {
 public:
  Gather(const uint8_t* sram, const Matmul& m)
      : in_(m.in),
        rows_(Rows(m)),
        cols_(Cols(m)),
        channels_(m.in.channels),
        sram_(sram),
        padding_(static_cast<float>(m.pad_value)),
        dense_(cols_.dilation == 1 && in_.pixel_stride == in_.channels) {}

  void operator()(int64_t pixel, float* to) const {
    const int64_t y = pixel / cols_.out, x = pixel % cols_.out;
    const int64_t left = cols_.At(x, 0), right = cols_.At(x, cols_.kernel - 1);
    for (int64_t i = 0; i < rows_.kernel; ++i) {
      const int64_t row = rows_.At(y, i);
      if (!rows_.Inside(row)) {
        to = std::fill_n(to, cols_.kernel * channels_, padding_);
      } else if (dense_ && cols_.Inside(left) && cols_.Inside(right)) {
        Widen(At(row, left), in_.dtype, cols_.kernel * channels_, to);
        to += cols_.kernel * channels_;
      } else {
        for (int64_t j = 0; j < cols_.kernel; ++j, to += channels_) {
          const int64_t col = cols_.At(x, j);
          if (cols_.Inside(col)) {
            Widen(At(row, col), in_.dtype, channels_, to);
          } else {
            std::fill_n(to, channels_, padding_);
          }
        }
      }
    }
  }

 private:
  const uint8_t* At(int64_t row, int64_t col) const {
    return sram_ + in_.address + row * in_.row_stride + col * in_.pixel_stride;
  }

  View in_;
  Axis rows_, cols_;
  int64_t channels_;
  const uint8_t* sram_;
  float padding_;
  bool dense_;  // whether the taps of a row are contiguous
};

// Scratch memory that is written before it is read; kept for the next instruction.
float* Room(std::vector<float>& room, int64_t count) {
  if (room.size() < static_cast<size_t>(count)) room.resize(static_cast<size_t>(count));
  return room.data();
}

// Weights int8 [blocks of `columns`][depth][columns] as float [blocks of kBlock][depth][kBlock].
// Columns of the last block beyond the channels are not written.
void Repack(const uint8_t* weights, int64_t depth, int64_t channels, int64_t columns,
            float* packed) {
  if (columns == kBlock) {
    return Widen(weights, Dtype::kInt8, CeilDiv(channels, kBlock) * depth * kBlock, packed);
  }
  int64_t width = 0;
  for (int64_t c = 0; c < channels; c += width) {
    width = std::min({kBlock - c % kBlock, columns - c % columns, channels - c});
    const uint8_t* from = weights + c / columns * depth * columns + c % columns;
    float* to = packed + c / kBlock * depth * kBlock + c % kBlock;
    for (int64_t k = 0; k < depth; ++k) {
      Widen(from + k * columns, Dtype::kInt8, width, to + k * kBlock);
    }
  }
}

}  // namespace

void Machine::Execute(const Matmul& m) {
  static const BlockMultiply multiply = FastestMultiply();
  const int64_t depth = int64_t{m.kernel_h} * m.kernel_w * m.in.channels;
  const int64_t pixels = int64_t{m.out_rows} * m.out_cols, channels = m.out_channels;
  float* weights = Room(columns_, CeilDiv(channels, kBlock) * depth * kBlock);
  Repack(&sram_[static_cast<size_t>(m.weights)], depth, channels, program_.config.columns, weights);
  uint32_t* sums = Sums(m.sums);
  if (m.bias >= 0) {
    const auto bias = Table<uint32_t>(m.bias, channels);
    for (int64_t p = 0; p < pixels; ++p) std::copy(bias.begin(), bias.end(), sums + p * channels);
  }
  const Gather gather(sram_.data(), m);
  // Whole tiles; the last tile can contain rows of another pixel, whose sums are discarded.
  const int64_t tiles = std::clamp<int64_t>(kGathered / depth / kTile, 1, CeilDiv(pixels, kTile));
  float* rows = Room(rows_, tiles * kTile * depth);
  for (int64_t first = 0; first < pixels; first += tiles * kTile) {
    const int64_t end = std::min(first + tiles * kTile, pixels);
    for (int64_t p = first; p < end; ++p) gather(p, rows + (p - first) * depth);
    for (int64_t k = 0; k < depth; k += kChunk) {
      for (int64_t c = 0; c < channels; c += kBlock) {
        const int64_t width = std::min(kBlock, channels - c);
        for (int64_t p = first; p < end; p += kTile) {
          float products[kTile * kBlock];
          multiply(rows + (p - first) * depth + k, depth, weights + c * depth + k * kBlock,
                   std::min(kChunk, depth - k), products);
          for (int64_t r = 0; r < std::min(kTile, end - p); ++r) {
            uint32_t* to = sums + (p + r) * channels + c;
            for (int64_t i = 0; i < width; ++i) {
              to[i] += static_cast<uint32_t>(static_cast<int32_t>(products[r * kBlock + i]));
            }
          }
        }
      }
    }
  }
}

}  // namespace tvmlab::npu
