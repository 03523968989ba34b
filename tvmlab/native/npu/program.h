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

// Thrown for a program that cannot be executed. The interface (module.cc) converts it to a Python
// error; the other sources do not depend on TVM.
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

// Rejects a program that accesses bytes outside of a memory, reads unwritten bytes, has a race
// between units, or leaves a part of an output unwritten.
void Verify(const Program& program);

// The cost of a layer, in the order of tvmlab/npu/simulator.py, which explains the names.
struct Counters {
  int64_t cycles, dma_cycles, array_cycles, vector_cycles, loaded_bytes, stored_bytes, bus_bytes;
  int64_t array_macs, vector_macs, sram_read_bytes, sram_written_bytes, instructions;
};

// Counts the cost of each layer of a verified program.
std::vector<Counters> Count(const Program& program);

// Returns the cycles of each instruction on its unit, 0 for Sync; the program can be unverified.
std::vector<int64_t> Cycles(const Program& program);

// Calls use(instruction) for each instruction of a program; an error names the instruction.
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
