// Where an instruction's numbers lie: views of images, and which of their pixels a window touches.
#ifndef TVMLAB_NPU_SHAPES_H_
#define TVMLAB_NPU_SHAPES_H_

#include <cstdint>
#include <vector>

#include "isa.h"
#include "memory.h"
#include "program.h"

namespace tvmlab::npu {

// An image in SRAM.
struct View {
  int64_t address, row_stride, pixel_stride, rows, cols, channels;
  Dtype dtype;

  Box box() const {
    return {{{{1, 0}, {1, 0}, {rows, row_stride}, {cols, pixel_stride}}}, channels * Bytes(dtype)};
  }
  int64_t bytes() const { return rows * cols * channels * Bytes(dtype); }
};

inline View Image(int64_t address, int64_t row_stride, int64_t pixel_stride, int64_t rows,
                  int64_t cols, int64_t channels, int32_t dtype) {
  return {address, row_stride, pixel_stride, rows, cols, channels, static_cast<Dtype>(dtype)};
}

template <typename Window>  // Matmul, Depthwise
View Input(const Window& w) {
  return Image(w.address, w.row_stride, w.pixel_stride, w.in_rows, w.in_cols, w.channels,
               w.in_dtype);
}
inline View Input(const Pool& p) {
  return Image(p.address, p.row_stride, p.pixel_stride, p.in_rows, p.in_cols, p.channels, p.dtype);
}
inline View Input(const Sum& s) {
  return Image(s.address, s.row_stride, s.pixel_stride, s.rows, s.cols, s.channels, s.dtype);
}
inline View Left(const Add& a) {
  return Image(a.lhs_address, a.lhs_row_stride, a.lhs_pixel_stride, a.rows, a.cols, a.channels,
               a.lhs_dtype);
}
inline View Right(const Add& a) {
  return Image(a.rhs_address, a.rhs_row_stride, a.rhs_pixel_stride, a.rows, a.cols, a.channels,
               a.rhs_dtype);
}
inline View Output(const Add& a) {
  return Image(a.out_address, a.out_row_stride, a.out_pixel_stride, a.rows, a.cols, a.channels,
               a.out_dtype);
}
inline View Output(const Pool& p) {
  return Image(p.out_address, p.out_row_stride, p.out_pixel_stride, p.out_rows, p.out_cols,
               p.channels, p.dtype);
}
inline View Output(const Requantize& r) {
  return Image(r.address, r.row_stride, r.pixel_stride, r.rows, r.cols, r.channels, r.out_dtype);
}

template <typename T>  // Load, Store
Box InDram(const T& t) {
  return {{{{t.count0, t.dram0}, {t.count1, t.dram1}, {t.count2, t.dram2}, {t.count3, t.dram3}}},
          t.element};
}
template <typename T>
Box InSram(const T& t) {
  return {{{{t.count0, t.sram0}, {t.count1, t.sram1}, {t.count2, t.sram2}, {t.count3, t.sram3}}},
          t.element};
}
template <typename T>
int64_t MovedBytes(const T& t) {
  return int64_t{t.element} * t.count0 * t.count1 * t.count2 * t.count3;
}

// The weights of a convolution, in bytes.
inline int64_t WeightBytes(const Matmul& m, const Config& config) {
  return CeilDiv(m.out_channels, config.columns) * config.columns * m.kernel_h * m.kernel_w *
         m.channels;
}
inline int64_t WeightBytes(const Depthwise& d, const Config&) {
  return int64_t{d.kernel_h} * d.kernel_w * d.channels * Bytes(static_cast<Dtype>(d.weight_dtype));
}

// One dimension of a window: what place of the input an output takes from a tap.
struct Axis {
  int64_t in, out, kernel, stride, dilation, pad;

  int64_t At(int64_t output, int64_t tap) const { return output * stride + tap * dilation - pad; }
  bool Inside(int64_t place) const { return place >= 0 && place < in; }

  // Which places of the input are taken by any.
  std::vector<uint8_t> Touched() const {
    std::vector<uint8_t> touched(static_cast<size_t>(in));
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t k = 0; k < kernel; ++k) {
        if (Inside(At(o, k))) touched[static_cast<size_t>(At(o, k))] = 1;
      }
    }
    return touched;
  }
};

template <typename Window>  // Matmul, Depthwise, Pool
Axis Rows(const Window& w) {
  return {w.in_rows, w.out_rows, w.kernel_h, w.stride_h, w.dilation_h, w.pad_top};
}
template <typename Window>
Axis Cols(const Window& w) {
  return {w.in_cols, w.out_cols, w.kernel_w, w.stride_w, w.dilation_w, w.pad_left};
}

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_SHAPES_H_
