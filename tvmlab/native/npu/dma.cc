// Boxes of numbers between DRAM and SRAM, number after number, in the order of the counts.
#include <array>
#include <cstring>
#include <utility>

#include "machine.h"

namespace tvmlab::npu {
namespace {

struct Step {
  int64_t count, to, from;
};

// Numbers of a size that the compiler knows move in a register.
template <int64_t kBytes>
void Move(uint8_t* to, const uint8_t* from, const Step& step) {
  for (int64_t i = 0; i < step.count; ++i) {
    std::memcpy(to + i * step.to, from + i * step.from, kBytes);
  }
}

void Move(uint8_t* to, const uint8_t* from, const Step& step, int64_t bytes) {
  switch (bytes) {
    case 1: return Move<1>(to, from, step);
    case 2: return Move<2>(to, from, step);
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
  // What is contiguous on both sides moves as one. The innermost of the other dimensions goes last.
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

void Machine::Execute(const Load& load) {
  const uint8_t* from = tensors_[static_cast<size_t>(load.tensor)] + load.offset;
  Copy(&sram_[static_cast<size_t>(load.address)], load.sram(), from, load.dram());
}

void Machine::Execute(const Store& store) {
  uint8_t* to = tensors_[static_cast<size_t>(store.tensor)] + store.offset;
  Copy(to, store.dram(), &sram_[static_cast<size_t>(store.address)], store.sram());
}

}  // namespace tvmlab::npu
