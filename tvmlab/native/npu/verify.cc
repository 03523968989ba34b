// Executes a program without data, to check which bytes each unit reads and writes in each phase,
// and that these are inside of their memory.
#include <algorithm>
#include <utility>

#include "program.h"

namespace tvmlab::npu {
namespace {

Box Run(int64_t count) { return {{1, 1, 1, 1}, {}, count}; }

// Which places of a memory are initialized, and which units accessed them in the current
// phase. A place is a byte, or an accumulator.
class ByteState {
 public:
  ByteState(const char* name, int64_t places, bool full)
      : name_(name), marks_(static_cast<size_t>(places), full ? kHolds : 0) {}

  void Read(int64_t start, const Box& box, Unit unit) {
    Access("reads", start, box, kHolds | Others(kWritten, unit), kHolds, Bit(kRead, unit));
  }
  void Write(int64_t start, const Box& box, Unit unit) {
    Access("writes", start, box, Others(kWritten, unit) | Others(kRead, unit), 0,
           kHolds | Bit(kWritten, unit));
  }

  // Clears the accesses of the phase.
  void EndPhase() {
    for (const auto& [at, count] : touched_) {
      std::for_each_n(marks_.begin() + at, count, [](Mark& mark) { mark &= kHolds; });
    }
    touched_.clear();
  }

  void ExpectWritten(size_t tensor) const {
    const auto empty = std::find(marks_.begin(), marks_.end(), 0);
    Require(empty == marks_.end(), "the program ends, but byte ", empty - marks_.begin(),
            " of tensor ", tensor, ", an output, was never written");
  }

 private:
  using Mark = uint8_t;
  static constexpr Mark kRead = 1, kWritten = 8, kHolds = 128;

  static Mark Bit(Mark first, Unit unit) {
    return static_cast<Mark>(first << static_cast<int>(unit));
  }
  static Mark Others(Mark first, Unit unit) {
    return static_cast<Mark>(7 * first & ~Bit(first, unit));
  }

  // Adds `mine` to marks, which must equal `right` in the bits of `mask`.
  void Access(const char* does, int64_t start, const Box& box, Mark mask, Mark right, Mark mine) {
    const auto [counts, strides, run] = box.Joined();
    for (int64_t a = 0; a < counts[0]; ++a) {
      for (int64_t b = 0; b < counts[1]; ++b) {
        for (int64_t c = 0; c < counts[2]; ++c) {
          const int64_t at = start + a * strides[0] + b * strides[1] + c * strides[2];
          for (int64_t d = 0; d < counts[3]; ++d) {
            AccessRun(does, at + d * strides[3], run, mask, right, mine);
          }
        }
      }
    }
  }

  void AccessRun(const char* does, int64_t at, int64_t count, Mark mask, Mark right, Mark mine) {
    Require(at >= 0 && at + count <= static_cast<int64_t>(marks_.size()), "it ", does, " ", name_,
            " from ", at, " to ", at + count, ", which ends at ", marks_.size());
    Mark* marks = marks_.data() + at;
    Mark wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      wrong |= (marks[i] & mask) ^ right;
      marks[i] |= mine;
    }
    for (int64_t i = 0; wrong != 0 && i < count; ++i) {
      Judge(does, at + i, marks[i] & mask, right);
    }
    touched_.emplace_back(at, count);
  }

  void Judge(const char* does, int64_t at, int mark, int right) const {
    static constexpr const char* kUnits[] = {"the DMA engine", "the array", "the vector unit"};
    for (int unit = 0; unit < 3; ++unit) {
      const bool written = mark & Bit(kWritten, static_cast<Unit>(unit));
      Require(!written && !(mark & Bit(kRead, static_cast<Unit>(unit))), "a race: it ", does, " ",
              name_, " at ", at, ", which ", kUnits[unit], written ? " writes" : " reads",
              " in the same phase");
    }
    Require(mark == right, "it reads ", name_, " at ", at, ", where nothing was written before");
  }

  const char* name_;
  std::vector<Mark> marks_;
  std::vector<std::pair<int64_t, int64_t>> touched_;  // starts and counts
};

class Player {
 public:
  explicit Player(const Program& program)
      : program_(program),
        sram_("the SRAM", program.config.sram_bytes, false),
        sums_("the accumulators", program.config.accumulators, false) {
    for (const Tensor& tensor : program.tensors) {
      tensors_.emplace_back("the tensor", tensor.nbytes, IsGiven(tensor.kind));
    }
  }

  void operator()(const Load& load) {
    TensorOf(load).Read(load.offset, load.dram(), Unit::kDma);
    sram_.Write(load.address, load.sram(), Unit::kDma);
  }

  void operator()(const Store& store) {
    ByteState& tensor = TensorOf(store);
    Require(!IsGiven(program_.tensors[static_cast<size_t>(store.tensor)].kind), "tensor ",
            store.tensor, " is one of the program's inputs or constants, which are read-only");
    sram_.Read(store.address, store.sram(), Unit::kDma);
    tensor.Write(store.offset, store.dram(), Unit::kDma);
  }

  void operator()(const Matmul& matmul) { Convolve(matmul, Unit::kArray); }
  void operator()(const Depthwise& depthwise) { Convolve(depthwise, Unit::kVector); }

  void operator()(const Requantize& r) {
    sums_.Read(r.sums, Run(r.out().box().Runs() * r.channels), Unit::kVector);
    if (r.rounding != Rounding::kNone) {
      sram_.Read(r.multipliers, Run(r.tables() * (r.rounding == Rounding::kTfliteFloat64 ? 8 : 4)),
                 Unit::kVector);
      if (r.rounding < Rounding::kOnnx) sram_.Read(r.shifts, Run(4 * r.tables()), Unit::kVector);
    }
    sram_.Write(r.to.address, r.out().box(), Unit::kVector);
  }

  void operator()(const Add& a) {
    sram_.Read(a.lhs.view.address, a.image(a.lhs.view).box(), Unit::kVector);
    if (a.both()) sram_.Read(a.rhs.view.address, a.image(a.rhs.view).box(), Unit::kVector);
    sram_.Write(a.to.address, a.image(a.to).box(), Unit::kVector);
  }

  void operator()(const Pool& p) {
    sram_.Read(p.in.address, p.in.box(), Unit::kVector);
    sram_.Write(p.out_address, p.out().box(), Unit::kVector);
  }

  void operator()(const Sum& s) {
    sram_.Read(s.in.address, s.in.box(), Unit::kVector);
    if (s.accumulate) sums_.Read(s.sums, Run(s.in.channels), Unit::kVector);
    sums_.Write(s.sums, Run(s.in.channels), Unit::kVector);
  }

  void operator()(const Sync&) {
    sram_.EndPhase();
    sums_.EndPhase();
    for (ByteState& tensor : tensors_) tensor.EndPhase();
  }

  void Finish() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (program_.tensors[i].kind == Kind::kOutput) tensors_[i].ExpectWritten(i);
    }
  }

 private:
  static bool IsGiven(Kind kind) { return kind == Kind::kInput || kind == Kind::kConstants; }

  ByteState& TensorOf(const Transfer& transfer) {
    const auto number = static_cast<size_t>(transfer.tensor);
    Require(number < tensors_.size(), "there is no tensor ", transfer.tensor);
    return tensors_[number];
  }

  template <typename Window>
  void Convolve(const Window& w, Unit unit) {
    sram_.Read(w.in.address, w.in.box(), unit);
    sram_.Read(w.weights, Run(WeightBytes(w, program_.config)), unit);
    const Box sums = Run(int64_t{w.out_rows} * w.out_cols * w.out_channels);
    if (w.bias >= 0) {
      sram_.Read(w.bias, Run(4 * int64_t{w.out_channels}), unit);
    } else {
      sums_.Read(w.sums, sums, unit);
    }
    sums_.Write(w.sums, sums, unit);
  }

  const Program& program_;
  ByteState sram_, sums_;
  std::vector<ByteState> tensors_;
};

}  // namespace

void Verify(const Program& program) {
  Player player(program);
  ForEach(program, [&](const auto& instruction) {
    Require(static_cast<size_t>(instruction.layer) < program.layers, "there is no layer ",
            instruction.layer);
    player(instruction);
  });
  player.Finish();
}

}  // namespace tvmlab::npu
