#include "machine.h"

namespace tvmlab::npu {

Machine::Machine(const Program& program, const std::vector<void*>& parameters)
    : program_(program),
      sram_(static_cast<size_t>(program.config.sram_bytes)),
      sums_(static_cast<size_t>(program.config.accumulators)) {
  size_t next = 0;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.kind == Kind::kConstants) {  // never written to: a Store to it is refused
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

}  // namespace

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
