#include "verify.h"

#include "shapes.h"

namespace tvmlab::npu {
namespace {

// Steps of this machine, about a nanosecond each or less, that executing takes at most.
struct Work {
  static constexpr int64_t kNumber = 8;  // what a number costs that is not a product of the array's

  template <typename T>
  std::enable_if_t<kIsTransfer<T>, int64_t> operator()(const T& t) const {
    return Product(MovedBytes(t), kNumber);
  }
  int64_t operator()(const Matmul& m) const {
    const int64_t inputs = Product(m.out_rows, m.out_cols, m.kernel_h, m.kernel_w, m.channels);
    const int64_t weights = Product(m.kernel_h, m.kernel_w, m.channels, m.out_channels);
    return Product(inputs, m.out_channels) + Product(inputs + weights, kNumber) + Places(m);
  }
  int64_t operator()(const Depthwise& d) const {
    const int64_t taps = Product(d.kernel_h, d.kernel_w);
    return Product(taps + 2, Product(d.out_rows, d.out_cols) + 1, d.channels, kNumber) + Places(d);
  }
  int64_t operator()(const Requantize& r) const {
    return Product(Product(r.rows, r.cols) + 1, r.channels, kNumber);
  }
  int64_t operator()(const Add& a) const { return Product(a.rows, a.cols, a.channels, kNumber); }
  int64_t operator()(const Pool& p) const {
    const int64_t taps = Product(p.kernel_h, p.kernel_w);
    return Product(taps + 2, p.out_rows, p.out_cols, p.channels, kNumber) + Places(p);
  }
  int64_t operator()(const Sum& s) const { return Product(s.rows, s.cols, s.channels, kNumber); }
  int64_t operator()(const Sync&) const { return kNumber; }

  // A tile may be larger than what its windows take of it; each place is looked at.
  template <typename Window>
  static int64_t Places(const Window& w) {
    return Product(w.in_rows, w.in_cols);
  }
};

}  // namespace

std::vector<Counters> Verify(const Program& program) {
  int64_t work = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    At(program, i, [&](const auto& instruction) {
      CheckFields(program, instruction);
      work += 64 + Work()(instruction);
      Require(work <= kMostWork, "the program asks for more than ", kMostWork, " steps");
    });
  }
  CheckAccesses(program);
  return Count(program);
}

}  // namespace tvmlab::npu
