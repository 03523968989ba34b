// Each instruction by itself: its numbers, and that all it touches lies in its memory.
#include <initializer_list>
#include <limits>
#include <utility>

#include "refused.h"
#include "shapes.h"
#include "verify.h"

namespace tvmlab::npu {
namespace {

// Sizes and steps; the product of two, and sums of such products, stay far below 2^63.
constexpr int64_t kMostSize = 1 << 24;

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program), config_(program.config) {}

  template <typename T>
  void operator()(const T& instruction) const {
    Between("layer", instruction.layer, 0, program_.layers - 1);
    Check(instruction);
  }

 private:
  void Check(const Sync&) const {}

  template <typename T>
  std::enable_if_t<kIsTransfer<T>> Check(const T& t) const {
    Between("tensor", t.tensor, 0, static_cast<int64_t>(program_.tensors.size()) - 1);
    const Tensor& tensor = program_.tensors[static_cast<size_t>(t.tensor)];
    Require(T::kOpcode == Load::kOpcode || tensor.kind == Kind::kOutput ||
                tensor.kind == Kind::kScratch,
            "tensor ", t.tensor, " is one of the program's inputs or constants, and they stay");
    Require(t.element == 1 || t.element == 2 || t.element == 4 || t.element == 8, "element is ",
            t.element, "; a number has 1, 2, 4 or 8 bytes");
    Sizes({t.count0, t.count1, t.count2, t.count3});
    Product(t.count0, t.count1, t.count2, t.count3, t.element);
    for (const Box& box : {InDram(t), InSram(t)}) {
      for (const auto& dimension : box.dimensions) {
        Between("a stride", dimension.stride, 0, std::numeric_limits<int32_t>::max());
      }
    }
    Inside("the tensor", t.offset, InDram(t), tensor.nbytes);
    Inside("the SRAM", t.address, InSram(t), config_.sram_bytes);
  }

  template <typename T>
  std::enable_if_t<kIsWindow<T>> Check(const T& w) const {
    Type("in_dtype", w.in_dtype, Dtype::kUInt8);
    const auto [low, high] = Ends(w.in_dtype);
    Between("pad_value", w.pad_value, low, high);
    Window(w);
    Sizes({w.out_channels});
    Image(Input(w));
    CheckWeights(w);
    Product(w.kernel_h, w.kernel_w, w.channels, w.out_channels, 2);
    Table("weights", w.weights, WeightBytes(w, config_));
    if (w.bias != -1) Table("bias", w.bias, 4 * int64_t{w.out_channels});
    Sums(w.sums, Product(w.out_rows, w.out_cols, w.out_channels));
  }

  void CheckWeights(const Matmul& m) const {
    Product(CeilDiv(m.out_channels, config_.columns), config_.columns, m.kernel_h, m.kernel_w,
            m.channels);
  }
  void CheckWeights(const Depthwise& d) const {
    Require(d.weight_dtype == static_cast<int>(Dtype::kInt8) ||
                d.weight_dtype == static_cast<int>(Dtype::kInt16),
            "weight_dtype is ", d.weight_dtype, "; weights are int8 or int16");
    Require(d.out_channels == d.channels, "out_channels is ", d.out_channels, ", and channels is ",
            d.channels);
  }

  void Check(const Requantize& r) const {
    Sizes({r.rows, r.cols, r.channels});
    Sums(r.sums, Product(r.rows, r.cols, r.channels));
    Require(r.sum_low <= r.sum_high, "sum_low is above sum_high");
    Between("rounding", r.rounding, 0, static_cast<int>(Rounding::kTfliteFloat64));
    Between("per_channel", r.per_channel, 0, 1);
    const int64_t tables = r.per_channel ? r.channels : 1;
    const auto rounding = static_cast<Rounding>(r.rounding);
    if (rounding != Rounding::kNone) {
      Table("multipliers", r.multipliers, tables * MultiplierBytes(rounding));
    }
    if (HasShifts(rounding)) Table("shifts", r.shifts, 4 * tables);
    Require(r.out_dtype != static_cast<int>(Dtype::kInt16), "out_dtype is int16");
    Clip("out_dtype", r.out_dtype, r.low, r.high);
    Image(Output(r));
  }

  void Check(const Add& a) const {
    Sizes({a.rows, a.cols, a.channels});
    Side("lhs", a.lhs_dtype, a.lhs_rounding, a.lhs_shift, a.out_rounding);
    Image(Left(a));
    if (a.rhs_address != -1) {
      Side("rhs", a.rhs_dtype, a.rhs_rounding, a.rhs_shift, a.out_rounding);
      Image(Right(a));
    }
    Between("left_shift", a.left_shift, 0, 31);
    Between("out_rounding", a.out_rounding, 0, static_cast<int>(Rounding::kOnnx));
    if (HasShifts(static_cast<Rounding>(a.out_rounding))) Shift("out_shift", a.out_shift);
    Clip("out_dtype", a.out_dtype, a.low, a.high);
    Image(Output(a));
  }

  void Side(const char* name, int32_t dtype, int32_t rounding, int32_t shift,
            int32_t out_rounding) const {
    Type(name, dtype, Dtype::kInt32);
    if (static_cast<Rounding>(out_rounding) == Rounding::kOnnx) return;  // it has no way of its own
    Between("a side's rounding", rounding, 0, static_cast<int>(Rounding::kTflite));
    if (HasShifts(static_cast<Rounding>(rounding))) Shift("a side's shift", shift);
  }

  void Check(const Pool& p) const {
    Between("kind", p.kind, 0, static_cast<int>(PoolKind::kAverageOnnx));
    Type("dtype", p.dtype, Dtype::kInt32);
    const auto [low, high] = Ends(p.dtype);
    Between("in_zero", p.in_zero, low, high);
    Between("out_zero", p.out_zero, low, high);
    Between("count_pad", p.count_pad, 0, 1);
    Between("pad_bottom", p.pad_bottom, -kMostSize, kMostSize);
    Between("pad_right", p.pad_right, -kMostSize, kMostSize);
    Window(p);
    // A sum of as many int32, less their zero points, and the padding fits int64.
    Between("the window's size", Product(p.kernel_h, p.kernel_w), 1, 1 << 29);
    if (static_cast<PoolKind>(p.kind) == PoolKind::kAverageTflite) {
      Type("dtype", p.dtype, Dtype::kInt16);
      const bool narrow = Bytes(static_cast<Dtype>(p.dtype)) == 1;
      Between("multiplier", p.multiplier, 0, std::numeric_limits<int32_t>::max());
      Between("shift", p.shift, 1, narrow ? 41 : 49);
      Between("the window's size", Product(p.kernel_h, p.kernel_w), 1, 1 << (narrow ? 21 : 13));
    }
    Image(Input(p));
    Image(Output(p));
  }

  void Check(const Sum& s) const {
    Type("dtype", s.dtype, Dtype::kInt32);
    Sizes({s.rows, s.cols, s.channels});
    Between("accumulate", s.accumulate, 0, 1);
    Image(Input(s));
    Sums(s.sums, s.channels);
  }

  template <typename T>
  void Window(const T& w) const {
    Sizes({w.in_rows, w.in_cols, w.channels, w.kernel_h, w.kernel_w, w.stride_h, w.stride_w,
           w.dilation_h, w.dilation_w, w.out_rows, w.out_cols});
    Between("pad_top", w.pad_top, -kMostSize, kMostSize);
    Between("pad_left", w.pad_left, -kMostSize, kMostSize);
    Product(w.out_rows, w.out_cols, w.kernel_h, w.kernel_w, w.channels);
  }

  static void Sizes(std::initializer_list<int64_t> sizes) {
    for (const int64_t size : sizes) Between("a size or step", size, 1, kMostSize);
  }

  static void Type(const char* name, int32_t dtype, Dtype most) {
    Between(name, dtype, 0, static_cast<int>(most));
  }

  static std::pair<int64_t, int64_t> Ends(int32_t dtype) {
    const int64_t half = int64_t{1} << (8 * Bytes(static_cast<Dtype>(dtype)) - 1);
    if (static_cast<Dtype>(dtype) == Dtype::kUInt8) return {0, 255};
    return {-half, half - 1};
  }

  static void Clip(const char* name, int32_t dtype, int64_t low, int64_t high) {
    Type(name, dtype, Dtype::kInt32);
    const auto [least, most] = Ends(dtype);
    Require(least <= low && low <= high && high <= most, "low and high are ", low, " and ", high,
            "; ", name, " has numbers from ", least, " to ", most);
  }

  static void Shift(const char* name, int32_t shift) { Between(name, shift, -31, 30); }

  static int64_t MultiplierBytes(Rounding rounding) {
    return rounding == Rounding::kTfliteFloat64 ? 8 : 4;
  }

  static bool HasShifts(Rounding rounding) {
    return rounding == Rounding::kUpward || rounding == Rounding::kToNearest ||
           rounding == Rounding::kTflite;
  }

  void Image(const View& view) const {
    Between("a row stride", view.row_stride, 0, std::numeric_limits<int32_t>::max());
    Between("a pixel stride", view.pixel_stride, 0, std::numeric_limits<int32_t>::max());
    Product(view.rows, view.cols, view.channels, Bytes(view.dtype));
    Inside("the SRAM", view.address, view.box(), config_.sram_bytes);
  }

  void Table(const char* name, int64_t address, int64_t bytes) const {
    Require(address >= 0 && bytes <= config_.sram_bytes - address, name, ": bytes ", address,
            " to ", address + bytes, " are not all in the SRAM of ", config_.sram_bytes);
  }

  void Sums(int64_t first, int64_t count) const {
    Require(first >= 0 && count <= config_.accumulators - first, "sums ", first, " to ",
            first + count, " are not all among the ", config_.accumulators, " accumulators");
  }

  // Counts are below 2^24 and strides below 2^31, so the end of a box is below 2^58.
  static void Inside(const char* name, int64_t start, const Box& box, int64_t bytes) {
    Require(start >= 0 && box.End(start) <= bytes, "bytes ", start, " to ", box.End(start),
            " are not all in ", name, " of ", bytes);
  }

  const Program& program_;
  const Config& config_;
};

}  // namespace

void CheckFields(const Program& program, const Instruction& instruction) {
  std::visit(Checker(program), instruction);
}

}  // namespace tvmlab::npu
