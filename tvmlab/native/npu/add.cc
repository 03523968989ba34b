// Two views added, or one brought to another scale.
#include <algorithm>

#include "rescale.h"

namespace tvmlab::npu {
namespace {

// One side at the scale that both have in common: an int32 that wraps. In place.
template <Rounding kRounding>
void Scale(int32_t* x, int64_t count, int32_t left, Add::Side side) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t shifted = WrappingShift(int64_t{x[i]} - side.zero, left);
    x[i] = Wrap32(Multiply<kRounding>(shifted, side.multiplier, side.shift));
  }
}

template <Rounding kRounding>
void Finish(const int32_t* lhs, const int32_t* rhs, int64_t count, const Add& add, int32_t* out) {
  const bool wraps = add.to.dtype == Dtype::kInt32;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t sum = Wrap32(int64_t{lhs[i]} + rhs[i]);
    int64_t x = Multiply<kRounding>(sum, add.out_multiplier, add.out_shift) + add.out_zero;
    if (wraps) x = Wrap32(x);
    out[i] = static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(x, add.low), add.high));
  }
}

// A product and a sum with one rounding to float32, by way of float64.
TVMLAB_NPU_INLINE float Fused(double x, float factor, float plus) {
  return static_cast<float>(x * factor + plus);
}

struct Ratios {
  float lhs, rhs, common;
  double low, high;
};

TVMLAB_NPU_CLONES
void Onnx(const int32_t* lhs, const int32_t* rhs, int64_t count, Ratios ratios, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const float right = Fused(rhs[i], ratios.rhs, ratios.common);
    const float sum = Fused(lhs[i], ratios.lhs, right);
    out[i] = Clip(__builtin_rintf(sum), ratios.low, ratios.high);
  }
}

}  // namespace

void Machine::Execute(const Add& add) {
  const bool onnx = add.out_rounding == Rounding::kOnnx;
  // Without a right side the ratio is 0, so that the rest stays what the sums have in common.
  const Ratios ratios{FloatOf(add.lhs.multiplier), add.both() ? FloatOf(add.rhs.multiplier) : 0,
                      FloatOf(add.out_multiplier), static_cast<double>(add.low),
                      static_cast<double>(add.high)};
  std::vector<int32_t> rows(static_cast<size_t>(2 * add.channels));
  int32_t *lhs = rows.data(), *rhs = lhs + add.channels;
  const auto read = [&](const Add::Side& side, int64_t y, int64_t x, int32_t* to) {
    Widen(Pixel(side.view, y, x), side.view.dtype, add.channels, to);
    if (onnx) return;
    WithFixedPoint(side.rounding,
                   [&](auto way) { Scale<way()>(to, add.channels, add.left_shift, side); });
  };
  for (int64_t y = 0; y < add.rows; ++y) {
    for (int64_t x = 0; x < add.cols; ++x) {
      read(add.lhs, y, x, lhs);
      if (add.both()) read(add.rhs, y, x, rhs);
      if (onnx) {
        Onnx(lhs, rhs, add.channels, ratios, lhs);
      } else {
        WithFixedPoint(add.out_rounding,
                       [&](auto way) { Finish<way()>(lhs, rhs, add.channels, add, lhs); });
      }
      Narrow(lhs, add.to.dtype, add.channels, Pixel(add.to, y, x));
    }
  }
}

}  // namespace tvmlab::npu
