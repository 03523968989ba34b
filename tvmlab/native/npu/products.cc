#include <cstring>

#include "machine.h"

namespace tvmlab::npu {
namespace {

// The same loop for vectors of several lengths: vectors longer than the processor's would be kept
// in memory. The compiler sees kTile * kBlock sums and keeps them in registers.
#define TVMLAB_NPU_MULTIPLY(Name, kBytes, ...)                                                  \
  typedef float Name##Vector __attribute__((vector_size(kBytes)));                              \
  __VA_ARGS__ void Name(const float* rows, int64_t stride, const float* columns, int64_t count, \
                        float* sums) {                                                          \
    constexpr int64_t kVectors = kBlock * sizeof(float) / kBytes;                               \
    Name##Vector sum[kTile][kVectors] = {}, column[kVectors];                                   \
    for (int64_t k = 0; k < count; ++k) {                                                       \
      std::memcpy(column, columns + k * kBlock, sizeof column);                                 \
      for (int64_t r = 0; r < kTile; ++r) {                                                     \
        for (int64_t v = 0; v < kVectors; ++v) sum[r][v] += rows[r * stride + k] * column[v];   \
      }                                                                                         \
    }                                                                                           \
    std::memcpy(sums, sum, sizeof sum);                                                         \
  }

TVMLAB_NPU_MULTIPLY(Multiply16, 16)  // SSE2, NEON
#if defined(__x86_64__)
TVMLAB_NPU_MULTIPLY(Multiply32, 32, __attribute__((target("avx2,fma"))))
TVMLAB_NPU_MULTIPLY(Multiply64, 64, __attribute__((target("avx512f"))))
#endif

}  // namespace

BlockMultiply FastestMultiply() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Multiply64;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Multiply32;
#endif
  return Multiply16;
}

}  // namespace tvmlab::npu
