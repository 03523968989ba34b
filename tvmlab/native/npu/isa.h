// The accelerator's instructions, field by field in the order of tvmlab/npu/isa.py, which says what
// they mean. A test compares the two through Listing().
#ifndef TVMLAB_NPU_ISA_H_
#define TVMLAB_NPU_ISA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace tvmlab::npu {

enum class Unit { kDma, kArray, kVector, kAll };
enum class Dtype : int32_t { kInt8, kUInt8, kInt16, kInt32 };
enum class Rounding : int32_t { kNone, kUpward, kToNearest, kTflite, kOnnx, kTfliteFloat64 };
enum class PoolKind : int32_t { kMax, kAverage, kAverageHalf, kAverageTflite, kAverageOnnx };

constexpr int64_t Bytes(Dtype dtype) {
  return dtype == Dtype::kInt32 ? 4 : dtype == Dtype::kInt16 ? 2 : 1;
}

// clang-format off
// Each list makes a struct of 32-bit integers and the row of its names.
#define TVMLAB_NPU_TRANSFER(X)                                                                  \
  X(layer) X(tensor) X(offset) X(address) X(element) X(count0) X(count1) X(count2) X(count3)    \
  X(dram0) X(dram1) X(dram2) X(dram3) X(sram0) X(sram1) X(sram2) X(sram3)
#define TVMLAB_NPU_WINDOW(X)                                                                    \
  X(layer) X(address) X(row_stride) X(pixel_stride) X(in_dtype) X(in_rows) X(in_cols)           \
  X(channels) X(pad_top) X(pad_left) X(pad_value) X(weights) X(kernel_h) X(kernel_w)            \
  X(stride_h) X(stride_w) X(dilation_h) X(dilation_w) X(out_rows) X(out_cols) X(out_channels)   \
  X(sums) X(bias)
#define TVMLAB_NPU_DEPTHWISE(X) TVMLAB_NPU_WINDOW(X) X(weight_dtype)
#define TVMLAB_NPU_REQUANTIZE(X)                                                                \
  X(layer) X(sums) X(rows) X(cols) X(channels) X(sum_low) X(sum_high) X(rounding)               \
  X(multipliers) X(shifts) X(per_channel) X(zero_point) X(low) X(high) X(address)               \
  X(row_stride) X(pixel_stride) X(out_dtype)
#define TVMLAB_NPU_ADD(X)                                                                       \
  X(layer) X(rows) X(cols) X(channels) X(lhs_address) X(lhs_row_stride) X(lhs_pixel_stride)     \
  X(lhs_dtype) X(lhs_zero) X(lhs_rounding) X(lhs_multiplier) X(lhs_shift) X(rhs_address)        \
  X(rhs_row_stride) X(rhs_pixel_stride) X(rhs_dtype) X(rhs_zero) X(rhs_rounding)                \
  X(rhs_multiplier) X(rhs_shift) X(left_shift) X(out_rounding) X(out_multiplier) X(out_shift)   \
  X(out_zero) X(low) X(high) X(out_address) X(out_row_stride) X(out_pixel_stride) X(out_dtype)
#define TVMLAB_NPU_POOL(X)                                                                      \
  X(layer) X(kind) X(address) X(row_stride) X(pixel_stride) X(dtype) X(in_rows) X(in_cols)      \
  X(channels) X(kernel_h) X(kernel_w) X(stride_h) X(stride_w) X(dilation_h) X(dilation_w)       \
  X(pad_top) X(pad_left) X(pad_bottom) X(pad_right) X(count_pad) X(in_zero) X(out_zero)         \
  X(multiplier) X(shift) X(out_rows) X(out_cols) X(out_address) X(out_row_stride)               \
  X(out_pixel_stride)
#define TVMLAB_NPU_SUM(X)                                                                       \
  X(layer) X(address) X(row_stride) X(pixel_stride) X(dtype) X(rows) X(cols) X(channels) X(low) \
  X(start) X(accumulate) X(sums)
#define TVMLAB_NPU_SYNC(X) X(layer)
// clang-format on

#define TVMLAB_NPU_FIELD(name) int32_t name;
#define TVMLAB_NPU_NAME(name) " " #name
#define TVMLAB_NPU_STRUCT(Name, opcode, unit, LIST)               \
  struct Name {                                                   \
    static constexpr int32_t kOpcode = opcode;                    \
    static constexpr Unit kUnit = unit;                           \
    static constexpr const char* kName = #Name;                   \
    static constexpr const char* kFields = LIST(TVMLAB_NPU_NAME); \
    LIST(TVMLAB_NPU_FIELD)                                        \
  };

TVMLAB_NPU_STRUCT(Load, 1, Unit::kDma, TVMLAB_NPU_TRANSFER)
TVMLAB_NPU_STRUCT(Store, 2, Unit::kDma, TVMLAB_NPU_TRANSFER)
TVMLAB_NPU_STRUCT(Matmul, 3, Unit::kArray, TVMLAB_NPU_WINDOW)
TVMLAB_NPU_STRUCT(Depthwise, 4, Unit::kVector, TVMLAB_NPU_DEPTHWISE)
TVMLAB_NPU_STRUCT(Requantize, 5, Unit::kVector, TVMLAB_NPU_REQUANTIZE)
TVMLAB_NPU_STRUCT(Add, 6, Unit::kVector, TVMLAB_NPU_ADD)
TVMLAB_NPU_STRUCT(Pool, 7, Unit::kVector, TVMLAB_NPU_POOL)
TVMLAB_NPU_STRUCT(Sum, 8, Unit::kVector, TVMLAB_NPU_SUM)
TVMLAB_NPU_STRUCT(Sync, 9, Unit::kAll, TVMLAB_NPU_SYNC)

using Instruction = std::variant<Load, Store, Matmul, Depthwise, Requantize, Add, Pool, Sum, Sync>;

template <typename T>
constexpr bool kIsTransfer = std::is_same_v<T, Load> || std::is_same_v<T, Store>;
template <typename T>
constexpr bool kIsWindow = std::is_same_v<T, Matmul> || std::is_same_v<T, Depthwise>;

// Calls `use` with a default instruction of each kind.
template <typename Use, size_t... I>
void ForEachKind(const Use& use, std::index_sequence<I...>) {
  (use(std::variant_alternative_t<I, Instruction>{}), ...);
}
template <typename Use>
void ForEachKind(const Use& use) {
  ForEachKind(use, std::make_index_sequence<std::variant_size_v<Instruction>>{});
}

// A line for each kind: opcode, name, names of the fields.
inline std::string Listing() {
  std::string text;
  ForEachKind([&text](auto kind) {
    using Kind = decltype(kind);
    text += std::to_string(Kind::kOpcode) + " " + Kind::kName + Kind::kFields + "\n";
  });
  return text;
}

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_ISA_H_
