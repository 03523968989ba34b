// A program: the bytes that tvmlab/npu/program.py describes, read.
#ifndef TVMLAB_NPU_PROGRAM_H_
#define TVMLAB_NPU_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "isa.h"

namespace tvmlab::npu {

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
  int64_t layers;  // how many; their names are for reports
  std::vector<Instruction> instructions;
  std::vector<uint8_t> constants;
};

// Throws Refused.
Program Read(std::string_view bytes);

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_PROGRAM_H_
