// The machine's memories, and boxes of numbers that move between DRAM and SRAM.
#include "machine.h"

#include <array>
#include <cstring>
#include <utility>

namespace tvmlab::npu {
namespace {

template <typename T, typename Wide>
TVMLAB_NPU_INLINE void WidenFrom(const uint8_t* from, int64_t count, Wide* to) {
  for (int64_t i = 0; i < count; ++i) {
    T number;
    std::memcpy(&number, from + i * static_cast<int64_t>(sizeof number), sizeof number);
    to[i] = static_cast<Wide>(number);  // NOLINT(bugprone-signed-char-misuse): int8 is a number
  }
}

template <typename T>
TVMLAB_NPU_INLINE void NarrowTo(const int32_t* from, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const T number = static_cast<T>(from[i]);
    std::memcpy(to + i * static_cast<int64_t>(sizeof number), &number, sizeof number);
  }
}

template <typename Wide>
TVMLAB_NPU_INLINE void WidenAny(const uint8_t* from, Dtype dtype, int64_t count, Wide* to) {
  switch (dtype) {
    case Dtype::kInt8: return WidenFrom<int8_t>(from, count, to);
    case Dtype::kUInt8: return WidenFrom<uint8_t>(from, count, to);
    case Dtype::kInt16: return WidenFrom<int16_t>(from, count, to);
    case Dtype::kInt32: return WidenFrom<int32_t>(from, count, to);
  }
}

struct Step {
  int64_t count, to, from;
};

// Numbers of a constant size are copied through a register.
template <int64_t kBytes>
void Move(uint8_t* to, const uint8_t* from, const Step& step) {
  for (int64_t i = 0; i < step.count; ++i) {
    std::memcpy(to + i * step.to, from + i * step.from, kBytes);
  }
}

void Move(uint8_t* to, const uint8_t* from, const Step& step, int64_t bytes) {
  switch (bytes) {
    case 1: return Move<1>(to, from, step);
    case 4: return Move<4>(to, from, step);
    case 8: return Move<8>(to, from, step);
  }
  for (int64_t i = 0; i < step.count; ++i) {
    std::memcpy(to + i * step.to, from + i * step.from, static_cast<size_t>(bytes));
  }
}

void Copy(uint8_t* to, const Box& to_box, const uint8_t* from, const Box& from_box) {
  int64_t bytes = to_box.run;
  std::array<Step, 4> steps;
  for (size_t i = 0; i < 4; ++i) {
    steps[i] = {to_box.counts[i], to_box.strides[i], from_box.strides[i]};
  }
  // Dimensions contiguous on both sides are merged. The innermost of the others goes last.
  for (size_t i = 4; i-- > 0;) {
    if (steps[i].count > 1 && (steps[i].to != bytes || steps[i].from != bytes)) {
      std::swap(steps[i], steps[3]);
      break;
    }
    bytes *= steps[i].count;
    steps[i].count = 1;
  }
  for (int64_t a = 0; a < steps[0].count; ++a) {
    for (int64_t b = 0; b < steps[1].count; ++b) {
      for (int64_t c = 0; c < steps[2].count; ++c) {
        Move(to + a * steps[0].to + b * steps[1].to + c * steps[2].to,
             from + a * steps[0].from + b * steps[1].from + c * steps[2].from, steps[3], bytes);
      }
    }
  }
}

}  // namespace

Machine::Machine(const Program& program, const std::vector<void*>& parameters)
    : program_(program),
      sram_(static_cast<size_t>(program.config.sram_bytes)),
      sums_(static_cast<size_t>(program.config.accumulators)) {
  size_t next = 0;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.kind == Kind::kConstants) {  // never written: the verifier rejects a Store to it
      tensors_.push_back(const_cast<uint8_t*>(program.constants.data()));
    } else if (tensor.kind == Kind::kScratch) {
      scratch_.emplace_back(static_cast<size_t>(tensor.nbytes));
      tensors_.push_back(scratch_.back().data());
    } else {
      tensors_.push_back(static_cast<uint8_t*>(parameters.at(next++)));
    }
  }
}

void Machine::Run() {
  ForEach(program_, [this](const auto& instruction) { Execute(instruction); });
}

void Machine::Execute(const Load& load) {
  const uint8_t* from = tensors_[static_cast<size_t>(load.tensor)] + load.offset;
  Copy(&sram_[static_cast<size_t>(load.address)], load.sram(), from, load.dram());
}

void Machine::Execute(const Store& store) {
  uint8_t* to = tensors_[static_cast<size_t>(store.tensor)] + store.offset;
  Copy(to, store.dram(), &sram_[static_cast<size_t>(store.address)], store.sram());
}

TVMLAB_NPU_CLONES
void Widen(const uint8_t* from, Dtype dtype, int64_t count, int32_t* to) {
  WidenAny(from, dtype, count, to);
}

TVMLAB_NPU_CLONES
void Widen(const uint8_t* from, Dtype dtype, int64_t count, float* to) {
  WidenAny(from, dtype, count, to);
}

TVMLAB_NPU_CLONES
void Narrow(const int32_t* from, Dtype dtype, int64_t count, uint8_t* to) {
  switch (dtype) {
    case Dtype::kInt8: return NarrowTo<int8_t>(from, count, to);
    case Dtype::kUInt8: return NarrowTo<uint8_t>(from, count, to);
    case Dtype::kInt16: return NarrowTo<int16_t>(from, count, to);
    case Dtype::kInt32: return NarrowTo<int32_t>(from, count, to);
  }
}

}  // namespace tvmlab::npu
