// A program: the bytes that tvmlab/npu/program.py describes, read, verified and counted.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isa.h"

namespace tvmlab::npu {

// What is thrown for a program that cannot be executed. The border (module.cc) makes it an error of
// Python's; everything else here knows nothing of TVM.
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

// In the order of tvmlab/npu/config.py's fields.
struct Config {
  int32_t rows, columns, lanes, sram_bytes, accumulators;
  int32_t dma_bytes_per_cycle, dma_burst_bytes, dma_latency, vector_latency, clock_mhz;
};

enum class Kind : uint8_t { kConstants, kInput, kOutput, kScratch };

struct Tensor {
  Kind kind;
  Dtype dtype;
  std::vector<int64_t> shape;
  int64_t nbytes;
};

struct Program {
  Config config;
  std::vector<Tensor> tensors;
  size_t layers;  // how many; their names are for reports
  std::vector<Instruction> instructions;
  std::vector<uint8_t> constants;
};

Program Read(std::string_view bytes);

// Refuses a program that leads out of a memory, reads what was not written, whose units get in each
// other's way, or that leaves a part of an output unwritten.
void Verify(const Program& program);

// What a layer costs, in the order of tvmlab/npu/simulator.py, which explains the names.
struct Counters {
  int64_t cycles, dma_cycles, array_cycles, vector_cycles, loaded_bytes, stored_bytes, bus_bytes;
  int64_t array_macs, vector_macs, sram_read_bytes, sram_written_bytes, instructions;
};

// Counts what each layer of a verified program costs.
std::vector<Counters> Count(const Program& program);

// The cycles of each instruction on its unit, 0 for Sync; of a program that need not be verified.
std::vector<int64_t> Cycles(const Program& program);

// Calls use(instruction) for each instruction of a program; an error says which one it was.
template <typename Use>
void ForEach(const Program& program, const Use& use) {
  size_t number = 0;
  for (const Instruction& any : program.instructions) {
    std::visit(
        [&](const auto& instruction) {
          try {
            use(instruction);
          } catch (Refused& refused) {
            refused.where =
                "instruction " + std::to_string(number) + " (" + kNames[any.index()] + ")";
            throw;
          }
        },
        any);
    ++number;
  }
}

inline int64_t WeightBytes(const Matmul& m, const Config& config) {
  return CeilDiv(m.out_channels, config.columns) * config.columns * m.kernel_h * m.kernel_w *
         m.in.channels;
}
inline int64_t WeightBytes(const Depthwise& d, const Config&) {
  return Bytes(d.weight_dtype) * d.kernel_h * d.kernel_w * d.in.channels;
}

}  // namespace tvmlab::npu
