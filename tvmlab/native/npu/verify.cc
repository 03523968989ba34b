#include "verify.h"

#include "shapes.h"

namespace tvmlab::npu {
namespace {

// How long this machine takes to execute, at most, in steps: a step is one of the array's products,
// of which it does some twenty in a nanosecond. The rest is an upper bound in round numbers.
struct Work {
  static constexpr int64_t kInstruction = 1 << 14, kPixel = 256, kNumber = 32;

  template <typename T>
  std::enable_if_t<kIsTransfer<T>, int64_t> operator()(const T& t) const {
    return Product(MovedBytes(t) / t.element, kNumber);
  }
  int64_t operator()(const Matmul& m) const {
    const int64_t taps = Product(m.kernel_h, m.kernel_w);
    const int64_t pixels = Product(m.out_rows, m.out_cols);
    return Product(taps, pixels, m.channels, m.out_channels) + Pixels(m.channels, taps, pixels) +
           Product(taps, m.channels, m.out_channels, kNumber) + Places(m);
  }
  int64_t operator()(const Depthwise& d) const {
    const int64_t pixels = Product(d.out_rows, d.out_cols) + 1;  // the weights are one more
    return Pixels(d.channels, Product(d.kernel_h, d.kernel_w), pixels) + Places(d);
  }
  int64_t operator()(const Requantize& r) const {
    return Pixels(r.channels, Product(r.rows, r.cols) + 1);  // the tables are one more
  }
  int64_t operator()(const Add& a) const { return Pixels(a.channels, a.rows, a.cols); }
  int64_t operator()(const Pool& p) const {
    const int64_t taps = Product(p.kernel_h, p.kernel_w);
    return Pixels(p.channels, taps, p.out_rows, p.out_cols) + Places(p);
  }
  int64_t operator()(const Sum& s) const { return Pixels(s.channels, s.rows, s.cols); }
  int64_t operator()(const Sync&) const { return 0; }

 private:
  template <typename... Counts>
  static int64_t Pixels(int64_t channels, Counts... counts) {
    return Product(kPixel + Product(channels, kNumber), counts...);
  }

  // A tile may be larger than what its windows take of it; each place is looked at.
  template <typename Window>
  static int64_t Places(const Window& w) {
    return Product(w.in_rows, w.in_cols, kNumber);
  }
};

}  // namespace

std::vector<Counters> Verify(const Program& program) {
  int64_t work = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    At(program, i, [&](const auto& instruction) {
      CheckFields(program, instruction);
      work += Work::kInstruction + Work()(instruction);
      Require(work <= kMostWork, "the program asks for more than ", kMostWork, " steps");
    });
  }
  CheckAccesses(program);
  return Count(program);
}

}  // namespace tvmlab::npu
