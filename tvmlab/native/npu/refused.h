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

// The most that a program may ask for, in steps (verify.cc): what takes some minutes.
constexpr int64_t kMostWork = int64_t{1} << 40;

// A product of sizes, refused where it is more than any program may ask for.
template <typename... Sizes>
int64_t Product(Sizes... sizes) {
  int64_t all = 1;
  for (const int64_t size : {static_cast<int64_t>(sizes)...}) {
    int64_t more = 0;
    Require(!__builtin_mul_overflow(all, size, &more) && more >= 0 && more <= kMostWork,
            "it asks for more than ", kMostWork, " steps");
    all = more;
  }
  return all;
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_REFUSED_H_
