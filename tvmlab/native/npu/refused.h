// What is thrown for a program that cannot be executed. The border (module.cc) makes it an error of
// Python's; everything else here knows nothing of TVM.
#ifndef TVMLAB_NPU_REFUSED_H_
#define TVMLAB_NPU_REFUSED_H_

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace tvmlab::npu {

struct Refused : std::runtime_error {
  explicit Refused(const std::string& what, std::string where = "")
      : std::runtime_error(what), where(std::move(where)) {}
  std::string where;  // such as "instruction 12 (Matmul)"; empty: the program as a whole
};

template <typename... Parts>
[[noreturn]] void Refuse(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Refused(text.str());
}

template <typename... Parts>
void Require(bool holds, const Parts&... parts) {
  if (!holds) Refuse(parts...);
}

inline void Between(const char* name, int64_t value, int64_t low, int64_t high) {
  Require(low <= value && value <= high, name, " is ", value, "; it lies between ", low, " and ",
          high);
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_REFUSED_H_
