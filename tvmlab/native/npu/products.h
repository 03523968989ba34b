// The innermost loop of the array: a few rows times a block of columns.
#ifndef TVMLAB_NPU_PRODUCTS_H_
#define TVMLAB_NPU_PRODUCTS_H_

#include <cstdint>

namespace tvmlab::npu {

constexpr int64_t kTile = 6;    // rows whose sums are in registers at once
constexpr int64_t kBlock = 16;  // columns

// sums[r][c] = sum over k < count of rows[r * stride + k] * columns[k * kBlock + c], for kTile rows
// and kBlock columns. The way to compute that is chosen by the processor at hand.
using Multiply = void (*)(const float* rows, int64_t stride, const float* columns, int64_t count,
                          float* sums);
Multiply FastestMultiply();

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_PRODUCTS_H_
