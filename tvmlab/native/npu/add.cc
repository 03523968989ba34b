// Two views added, or one brought to another scale.
#include <algorithm>

#include "machine.h"
#include "rescale.h"

namespace tvmlab::npu {
namespace {

// One side at the scale that both have in common: an int32 that wraps. In place.
template <Rounding kRounding>
void Scale(int32_t* x, int64_t count, int32_t zero, int32_t left, int32_t multiplier,
           int32_t shift) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t shifted = WrappingShift(int64_t{x[i]} - zero, left);
    x[i] = Wrap32(Multiply<kRounding>(shifted, multiplier, shift));
  }
}

template <Rounding kRounding>
void Finish(const int32_t* lhs, const int32_t* rhs, int64_t count, const Add& add, int32_t* out) {
  const bool wraps = static_cast<Dtype>(add.out_dtype) == Dtype::kInt32;
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
  const View left = Left(add), right = Right(add), out = Output(add);
  const bool both = add.rhs_address >= 0;
  const bool onnx = static_cast<Rounding>(add.out_rounding) == Rounding::kOnnx;
  // Without a right side the ratio is 0, so that the rest stays what the sums have in common.
  const Ratios ratios{FloatOf(add.lhs_multiplier), both ? FloatOf(add.rhs_multiplier) : 0,
                      FloatOf(add.out_multiplier), static_cast<double>(add.low),
                      static_cast<double>(add.high)};
  std::vector<int32_t> rows(static_cast<size_t>(2 * add.channels));
  int32_t *lhs = rows.data(), *rhs = lhs + add.channels;
  for (int64_t y = 0; y < add.rows; ++y) {
    for (int64_t x = 0; x < add.cols; ++x) {
      Widen(Pixel(left, y, x), left.dtype, add.channels, lhs);
      if (both) Widen(Pixel(right, y, x), right.dtype, add.channels, rhs);
      if (onnx) {
        Onnx(lhs, rhs, add.channels, ratios, lhs);
      } else {
        WithFixedPoint(static_cast<Rounding>(add.lhs_rounding), [&](auto way) {
          Scale<way()>(lhs, add.channels, add.lhs_zero, add.left_shift, add.lhs_multiplier,
                       add.lhs_shift);
        });
        if (both) {
          WithFixedPoint(static_cast<Rounding>(add.rhs_rounding), [&](auto way) {
            Scale<way()>(rhs, add.channels, add.rhs_zero, add.left_shift, add.rhs_multiplier,
                         add.rhs_shift);
          });
        }
        WithFixedPoint(static_cast<Rounding>(add.out_rounding),
                       [&](auto way) { Finish<way()>(lhs, rhs, add.channels, add, lhs); });
      }
      Narrow(lhs, out.dtype, add.channels, Pixel(out, y, x));
    }
  }
}

}  // namespace tvmlab::npu
