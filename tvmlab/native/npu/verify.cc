// Plays a program through without its data: who reads and writes which bytes, in which phase, and
// whether they lie in their memory.
#include "verify.h"

#include <optional>

#include "memory.h"
#include "shapes.h"

namespace tvmlab::npu {
namespace {

class Player {
 public:
  explicit Player(const Program& program)
      : program_(program),
        sram_("the SRAM", program.config.sram_bytes),
        sums_("the accumulators", program.config.accumulators) {
    for (const Tensor& tensor : program.tensors) {
      const bool full = tensor.kind == Kind::kInput || tensor.kind == Kind::kConstants;
      tensors_.emplace_back();
      if (!full) tensors_.back().emplace("the tensor", tensor.nbytes);
    }
  }

  template <typename T>
  void operator()(const T& instruction) {
    Between("layer", instruction.layer, 0, program_.layers - 1);
    Play(instruction);
  }

  void Finish() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (program_.tensors[i].kind != Kind::kOutput) continue;
      const int64_t empty = tensors_[i]->FirstEmpty();
      Require(empty < 0, "the program ends, and byte ", empty, " of tensor ", i,
              ", an output, was never written");
    }
  }

 private:
  void Play(const Load& load) {
    if (Marks* tensor = TensorOf(load)) {
      ForEachRun(load.offset, InDram(load),
                 [&](int64_t at, int64_t count) { tensor->Read(at, count, Unit::kDma); });
    } else {
      const int64_t bytes = program_.tensors[static_cast<size_t>(load.tensor)].nbytes;
      const int64_t end = InDram(load).End(load.offset);
      Require(load.offset >= 0 && end <= bytes, "it reads the tensor up to ", end, " of ", bytes);
    }
    Write(load.address, InSram(load), Unit::kDma);
  }

  void Play(const Store& store) {
    Read(store.address, InSram(store), Unit::kDma);
    Marks* tensor = TensorOf(store);
    Require(tensor != nullptr, "tensor ", store.tensor,
            " is one of the program's inputs or constants, and they stay");
    ForEachRun(store.offset, InDram(store),
               [&](int64_t at, int64_t count) { tensor->Write(at, count, Unit::kDma); });
  }

  template <typename T>
  std::enable_if_t<kIsWindow<T>> Play(const T& w) {
    ReadTouched(w, T::kUnit);
    sram_.Read(w.weights, WeightBytes(w, program_.config), T::kUnit);
    const int64_t count = int64_t{w.out_rows} * w.out_cols * w.out_channels;
    if (w.bias >= 0) {
      sram_.Read(w.bias, 4 * int64_t{w.out_channels}, T::kUnit);
    } else {
      sums_.Read(w.sums, count, T::kUnit);
    }
    sums_.Write(w.sums, count, T::kUnit);
  }

  void Play(const Requantize& r) {
    const auto rounding = static_cast<Rounding>(r.rounding);
    const int64_t tables = r.per_channel ? r.channels : 1;
    sums_.Read(r.sums, int64_t{r.rows} * r.cols * r.channels, r.kUnit);
    if (rounding != Rounding::kNone) {
      sram_.Read(r.multipliers, tables * (rounding == Rounding::kTfliteFloat64 ? 8 : 4), r.kUnit);
      if (rounding < Rounding::kOnnx) sram_.Read(r.shifts, 4 * tables, r.kUnit);
    }
    Write(r.address, Output(r).box(), r.kUnit);
  }

  void Play(const Add& a) {
    Read(a.lhs_address, Left(a).box(), a.kUnit);
    if (a.rhs_address >= 0) Read(a.rhs_address, Right(a).box(), a.kUnit);
    Write(a.out_address, Output(a).box(), a.kUnit);
  }

  void Play(const Pool& p) {
    ReadTouched(p, p.kUnit);
    Write(p.out_address, Output(p).box(), p.kUnit);
  }

  void Play(const Sum& s) {
    Read(s.address, Input(s).box(), s.kUnit);
    if (s.accumulate) sums_.Read(s.sums, s.channels, s.kUnit);
    sums_.Write(s.sums, s.channels, s.kUnit);
  }

  void Play(const Sync&) {
    sram_.EndPhase();
    sums_.EndPhase();
  }

  // The marks of a transfer's tensor; none where all of it is there from the start.
  template <typename Transfer>
  Marks* TensorOf(const Transfer& transfer) {
    Between("tensor", transfer.tensor, 0, static_cast<int64_t>(tensors_.size()) - 1);
    auto& marks = tensors_[static_cast<size_t>(transfer.tensor)];
    return marks ? &*marks : nullptr;
  }

  void Read(int64_t start, const Box& box, Unit unit) {
    ForEachRun(start, box, [&](int64_t at, int64_t count) { sram_.Read(at, count, unit); });
  }
  void Write(int64_t start, const Box& box, Unit unit) {
    ForEachRun(start, box, [&](int64_t at, int64_t count) { sram_.Write(at, count, unit); });
  }

  // Pixels that no tap takes, such as those that a stride steps over, need not be there.
  template <typename Window>
  void ReadTouched(const Window& w, Unit unit) {
    const View view = Input(w);
    const auto rows = npu::Rows(w).Touched(), cols = npu::Cols(w).Touched();
    for (int64_t y = 0; y < view.rows; ++y) {
      if (!rows[static_cast<size_t>(y)]) continue;
      for (int64_t x = 0, end = 0; x < view.cols; x = end) {
        end = x + 1;
        if (!cols[static_cast<size_t>(x)]) continue;
        while (end < view.cols && cols[static_cast<size_t>(end)]) ++end;
        View part = view;
        part.rows = 1;
        part.cols = end - x;
        Read(view.address + y * view.row_stride + x * view.pixel_stride, part.box(), unit);
      }
    }
  }

  const Program& program_;
  Marks sram_, sums_;
  std::vector<std::optional<Marks>> tensors_;
};

}  // namespace

std::vector<Counters> Verify(const Program& program) {
  Player player(program);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    At(program, i, [&](const auto& instruction) { player(instruction); });
  }
  player.Finish();
  return Count(program);
}

}  // namespace tvmlab::npu
