// The constant quantizer: float32 values to integers, as Relay's qnn.quantize computes them.
//
//   out = saturate(round(in / scale) + zero_point)
//
// Everything before the last cast is float32, and round() takes halves away from zero, as in TVM
// 0.18. This header does not depend on TVM; module.cc is the interface to Python and TVM.
#pragma once

#include <cstdint>

namespace tvmlab {

// A tensor of any rank seen from one axis: `outer` blocks of `channels` rows of `inner` values.
// Per-tensor quantization is the layout {1, 1, number of values}.
struct Layout {
  int64_t outer, channels, inner;
};

// Scales or zero points: one value for all channels, or one each.
template <typename T>
struct PerChannel {
  const T* values;
  bool shared;
  T operator[](int64_t channel) const { return values[shared ? 0 : channel]; }
};

// Quantizes all values from `in` to `out`. Infinities saturate. Returns the position of the first
// NaN, which has no integer, or -1. Scales must be positive and finite.
template <typename Out>
int64_t Quantize(const float* in, Layout layout, PerChannel<float> scale,
                 PerChannel<int32_t> zero_point, Out* out);

}  // namespace tvmlab
