// What is thrown for a program that cannot be executed. The border (module.cc) makes it an error of
// Python's; everything else here knows nothing of TVM.
#ifndef TVMLAB_NPU_REFUSED_H_
#define TVMLAB_NPU_REFUSED_H_

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace tvmlab::npu {

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
  std::string where = "npu.simulator";  // or such as "instruction 12 (Matmul)"
};

template <typename... Parts>
void Require(bool holds, const Parts&... parts) {
  if (holds) return;
  std::ostringstream text;
  (text << ... << parts);
  throw Refused(text.str());
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_REFUSED_H_
