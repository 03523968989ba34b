// The arithmetic, without TVM, so that this file compiles quickly on its own.
#include "quantize.h"

#include <cmath>
#include <limits>

namespace tvmlab {
namespace {

// The rounding mode, in one place. Halves go away from zero: 0.5 -> 1, -2.5 -> -3.
inline float Round(float x) { return std::round(x); }

// The nearest Out. Compared in double, which holds every int32 exactly; float32 does not: 2^31 - 1
// becomes 2^31 there, and casting that back would be undefined behaviour.
template <typename Out>
inline Out Saturate(float x) {
  constexpr double kLow = std::numeric_limits<Out>::min();
  constexpr double kHigh = std::numeric_limits<Out>::max();
  const double wide = x;
  if (wide <= kLow) return std::numeric_limits<Out>::min();
  if (wide >= kHigh) return std::numeric_limits<Out>::max();
  return static_cast<Out>(wide);
}

}  // namespace

template <typename Out>
int64_t Quantize(const float* in, Layout layout, PerChannel<float> scale,
                 PerChannel<int32_t> zero_point, Out* out) {
  int64_t i = 0;
  for (int64_t o = 0; o < layout.outer; ++o) {
    for (int64_t c = 0; c < layout.channels; ++c) {
      const float s = scale[c];
      const float z = static_cast<float>(zero_point[c]);
      for (int64_t n = 0; n < layout.inner; ++n, ++i) {
        if (std::isnan(in[i])) return i;
        out[i] = Saturate<Out>(Round(in[i] / s) + z);
      }
    }
  }
  return -1;
}

template int64_t Quantize(const float*, Layout, PerChannel<float>, PerChannel<int32_t>, int8_t*);
template int64_t Quantize(const float*, Layout, PerChannel<float>, PerChannel<int32_t>, uint8_t*);
template int64_t Quantize(const float*, Layout, PerChannel<float>, PerChannel<int32_t>, int16_t*);
template int64_t Quantize(const float*, Layout, PerChannel<float>, PerChannel<int32_t>, int32_t*);

}  // namespace tvmlab
