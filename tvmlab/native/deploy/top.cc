#include "top.h"

#include <algorithm>
#include <cmath>

namespace tvmlab::deploy {
namespace {

template <typename T>
std::vector<std::pair<int64_t, double>> Read(const tvm::ffi::Tensor& output) {
  const char* bytes = static_cast<const char*>(output.data_ptr()) + output.byte_offset();
  const T* values = reinterpret_cast<const T*>(bytes);
  std::vector<std::pair<int64_t, double>> all;
  for (int64_t i = 0; i < output.numel(); ++i) all.emplace_back(i, static_cast<double>(values[i]));
  return all;
}

std::vector<std::pair<int64_t, double>> ReadAny(const tvm::ffi::Tensor& output) {
  const DLDataType dtype = output.dtype();
  if (dtype.code == kDLFloat && dtype.bits == 32) return Read<float>(output);
  if (dtype.code == kDLFloat && dtype.bits == 64) return Read<double>(output);
  if (dtype.code == kDLInt && dtype.bits == 8) return Read<int8_t>(output);
  if (dtype.code == kDLUInt && dtype.bits == 8) return Read<uint8_t>(output);
  if (dtype.code == kDLInt && dtype.bits == 32) return Read<int32_t>(output);
  if (dtype.code == kDLInt && dtype.bits == 64) return Read<int64_t>(output);
  return {};
}

}  // namespace

std::vector<std::pair<int64_t, double>> Top(const tvm::ffi::Tensor& output, size_t count) {
  auto all = ReadAny(output);
  count = std::min(count, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                    [](const auto& a, const auto& b) {
                      const bool no_a = std::isnan(a.second), no_b = std::isnan(b.second);
                      if (no_a != no_b) return no_b;
                      if (!no_a && a.second != b.second) return a.second > b.second;
                      return a.first < b.first;
                    });
  all.resize(count);
  return all;
}

}  // namespace tvmlab::deploy
