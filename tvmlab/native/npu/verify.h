// What can be said about a program without its data: that it may be executed, and what that costs.
#ifndef TVMLAB_NPU_VERIFY_H_
#define TVMLAB_NPU_VERIFY_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "program.h"
#include "refused.h"

namespace tvmlab::npu {

// clang-format off
// What a layer costs. A test compares the names with those in tvmlab/npu/simulator.py.
#define TVMLAB_NPU_COUNTERS(X)                                                                   \
  X(cycles) X(dma_cycles) X(array_cycles) X(vector_cycles) X(loaded_bytes) X(stored_bytes)       \
  X(bus_bytes) X(array_macs) X(vector_macs) X(sram_read_bytes) X(sram_written_bytes)             \
  X(instructions)
// clang-format on

struct Counters {
#define TVMLAB_NPU_COUNTER(name) int64_t name = 0;
  TVMLAB_NPU_COUNTERS(TVMLAB_NPU_COUNTER)
#undef TVMLAB_NPU_COUNTER
};

// Calls use(instruction) with one of a program's instructions; says in an error which one it was.
template <typename Use>
void At(const Program& program, size_t number, const Use& use) {
  std::visit(
      [&](const auto& instruction) {
        try {
          use(instruction);
        } catch (Refused& refused) {
          if (refused.where.empty()) {
            refused.where =
                "instruction " + std::to_string(number) + " (" + instruction.kName + ")";
          }
          throw;
        }
      },
      program.instructions[number]);
}

// The cycles of each instruction on its unit, 0 for Sync; of a program that need not be verified.
std::vector<int64_t> Cycles(const Program& program);

// Counts, for each layer, what a verified program costs.
std::vector<Counters> Count(const Program& program);

// Refuses a program that leads out of a memory, reads what was not written, whose units get in each
// other's way, or that leaves a part of an output unwritten; then counts.
std::vector<Counters> Verify(const Program& program);

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_VERIFY_H_
