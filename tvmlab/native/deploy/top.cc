#include "top.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tvmlab::deploy {
namespace {

// IEEE 754's binary16: a sign, 5 bits of exponent, 10 of mantissa.
struct Half {
  uint16_t bits;
  operator double() const {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = std::ldexp(exponent ? 1024 + mantissa : mantissa, std::max(exponent, 1) - 25);
    if (exponent == 31) size = mantissa ? std::nan("") : HUGE_VAL;
    return bits >> 15 ? -size : size;
  }
};

// The upper half of a float.
struct Brain {
  uint16_t bits;
  operator double() const {
    const uint32_t whole = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &whole, sizeof value);
    return value;
  }
};

template <typename T>
std::vector<double> Read(const tvm::ffi::Tensor& output) {
  const char* bytes = static_cast<const char*>(output.data_ptr()) + output.byte_offset();
  const T* values = reinterpret_cast<const T*>(bytes);
  std::vector<double> all;
  for (int64_t i = 0; i < output.numel(); ++i) all.push_back(static_cast<double>(values[i]));
  return all;
}

std::optional<std::vector<double>> ReadAny(const tvm::ffi::Tensor& output) {
  const DLDataType dtype = output.dtype();
  if (dtype.lanes != 1) return std::nullopt;
  switch (dtype.code << 8 | dtype.bits) {
    case kDLFloat << 8 | 16: return Read<Half>(output);
    case kDLFloat << 8 | 32: return Read<float>(output);
    case kDLFloat << 8 | 64: return Read<double>(output);
    case kDLBfloat << 8 | 16: return Read<Brain>(output);
    case kDLInt << 8 | 8: return Read<int8_t>(output);
    case kDLInt << 8 | 16: return Read<int16_t>(output);
    case kDLInt << 8 | 32: return Read<int32_t>(output);
    case kDLInt << 8 | 64: return Read<int64_t>(output);
    case kDLBool << 8 | 8:
    case kDLUInt << 8 | 8: return Read<uint8_t>(output);
    case kDLUInt << 8 | 16: return Read<uint16_t>(output);
    case kDLUInt << 8 | 32: return Read<uint32_t>(output);
    case kDLUInt << 8 | 64: return Read<uint64_t>(output);
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<std::vector<Ranked>> Top(const tvm::ffi::Tensor& output, size_t count) {
  const std::optional<std::vector<double>> all = ReadAny(output);
  if (!all) return std::nullopt;
  const tvm::ffi::ShapeView shape = output.shape();
  const auto classes = shape.empty() ? size_t{1} : static_cast<size_t>(shape.back());
  std::vector<Ranked> found;
  for (size_t start = 0; start < all->size(); start += classes) {
    std::vector<Ranked> row;
    for (size_t i = 0; i < classes; ++i) row.push_back({start / classes, i, (*all)[start + i]});
    const auto end = row.begin() + static_cast<std::ptrdiff_t>(std::min(count, classes));
    std::partial_sort(row.begin(), end, row.end(), [](const Ranked& a, const Ranked& b) {
      const bool no_a = std::isnan(a.value), no_b = std::isnan(b.value);
      if (no_a != no_b) return no_b;
      if (!no_a && a.value != b.value) return a.value > b.value;
      return a.place < b.place;
    });
    found.insert(found.end(), row.begin(), end);
  }
  return found;
}

}  // namespace tvmlab::deploy
