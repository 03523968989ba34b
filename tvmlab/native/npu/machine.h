// The machine's state during execution: its memories, and a function for each instruction.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "program.h"

// Loops that are compiled for several generations of processors; the loader chooses one of them.
// GCC selects by features such as "avx2"; "arch=..." would match one model only. Clang has another
// syntax, and sanitizers are not initialized yet when the choice is made.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define TVMLAB_NPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TVMLAB_NPU_CLONES
#endif
// Inlined into the loop around it, for whichever processor that loop is compiled.
#define TVMLAB_NPU_INLINE [[gnu::always_inline]] inline

namespace tvmlab::npu {

class Machine {
 public:
  // `parameters`: addresses of the inputs and outputs, in the order of the table.
  Machine(const Program& program, const std::vector<void*>& parameters);

  void Run();

 private:
  void Execute(const Load& load);
  void Execute(const Store& store);
  void Execute(const Matmul& matmul);
  void Execute(const Depthwise& depthwise);
  void Execute(const Requantize& requantize);
  void Execute(const Add& add);
  void Execute(const Pool& pool);
  void Execute(const Sum& sum);
  void Execute(const Sync&) {}

  uint8_t* Pixel(const Strided& view, int64_t y, int64_t x) {
    return &sram_[static_cast<size_t>(view.address + y * view.row_stride + x * view.pixel_stride)];
  }

  // A table in SRAM, which need not be aligned.
  template <typename T>
  std::vector<T> Table(int64_t address, int64_t count) const {
    std::vector<T> table(static_cast<size_t>(count));
    std::memcpy(table.data(), &sram_[static_cast<size_t>(address)], table.size() * sizeof(T));
    return table;
  }

  uint32_t* Sums(int64_t first) { return &sums_[static_cast<size_t>(first)]; }

  const Program& program_;
  std::vector<uint8_t> sram_;
  std::vector<uint32_t> sums_;  // int32 that wrap
  std::vector<uint8_t*> tensors_;
  std::vector<std::vector<uint8_t>> scratch_;
  std::vector<float> rows_, columns_;  // scratch of the array, reused by its instructions
};

constexpr int64_t kTile = 6;    // rows whose sums are in registers at once
constexpr int64_t kBlock = 16;  // columns

// sums[r][c] = sum over k < count of rows[r * stride + k] * columns[k * kBlock + c], for kTile rows
// and kBlock columns. The implementation depends on the processor.
using BlockMultiply = void (*)(const float* rows, int64_t stride, const float* columns,
                               int64_t count, float* sums);
BlockMultiply FastestMultiply();

// Widens the numbers of a pixel, and narrows them again. The narrowed numbers fit.
void Widen(const uint8_t* from, Dtype dtype, int64_t count, int32_t* to);
void Widen(const uint8_t* from, Dtype dtype, int64_t count, float* to);
void Narrow(const int32_t* from, Dtype dtype, int64_t count, uint8_t* to);

}  // namespace tvmlab::npu
