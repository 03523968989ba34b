// Multiplying integers by real numbers, bit for bit as tvmlab/qnn/fixed_point.py and
// numbers.py define. Products of 64 bits wrap, as NumPy's do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "machine.h"

namespace tvmlab::npu {

TVMLAB_NPU_INLINE int64_t WrappingMultiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
TVMLAB_NPU_INLINE int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
TVMLAB_NPU_INLINE int64_t WrappingShift(int64_t a, int32_t left) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) << left);
}
// Conversions to a narrower signed integer wrap: C++20 requires it, and all compilers did before.
TVMLAB_NPU_INLINE int32_t Wrap32(int64_t x) {
  return static_cast<int32_t>(static_cast<uint32_t>(x));
}

// A multiplier of 31 bits and a shift from -31 to 30.
template <Rounding kRounding>
TVMLAB_NPU_INLINE int64_t Multiply(int64_t x, int32_t multiplier, int32_t shift) {
  static_assert(kRounding < Rounding::kOnnx);
  if constexpr (kRounding == Rounding::kNone) {
    return x;
  } else if constexpr (kRounding == Rounding::kTflite) {
    // A doubling product truncated to its high half, then a division by a power of two.
    const int64_t shifted = Wrap32(WrappingShift(x, std::max(shift, 0)));
    const int64_t product = shifted * multiplier;
    const int64_t high = std::min<int64_t>((product + (int64_t{1} << 30)) >> 31, INT32_MAX);
    const int32_t right = std::max(-shift, 0);
    const int64_t mask = (int64_t{1} << right) - 1;
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0));
  } else {
    const int32_t right = 31 - shift;
    const int64_t product = WrappingMultiply(x, multiplier);
    int64_t rounded = WrappingAdd(product, int64_t{1} << (right - 1));
    if (kRounding == Rounding::kToNearest && product < 0) rounded = WrappingAdd(rounded, -1);
    return rounded >> right;
  }
}

inline float FloatOf(int32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Converts a whole floating-point number to an integer; NaN becomes the largest integer.
TVMLAB_NPU_INLINE int32_t Clip(double x, double low, double high) {
  const double below = x < high ? x : high;  // two steps, which vectorize
  return static_cast<int32_t>(below > low ? below : low);
}

// Rounds half away from zero; adding a half first would round the float before 0.5 to 1.
TVMLAB_NPU_INLINE double HalfAway(double x) {
  const double whole = std::trunc(x);
  return std::fabs(x - whole) >= 0.5 ? whole + std::copysign(1.0, x) : whole;
}

// Calls use(constant) with the rounding mode as a type.
template <typename Use>
void WithFixedPoint(Rounding rounding, const Use& use) {
  switch (rounding) {
    case Rounding::kUpward: return use(std::integral_constant<Rounding, Rounding::kUpward>());
    case Rounding::kToNearest: return use(std::integral_constant<Rounding, Rounding::kToNearest>());
    case Rounding::kTflite: return use(std::integral_constant<Rounding, Rounding::kTflite>());
    default: return use(std::integral_constant<Rounding, Rounding::kNone>());
  }
}

}  // namespace tvmlab::npu
