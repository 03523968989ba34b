#include "fold.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "../quantizer/quantize.h"

namespace tvmlab {
namespace {

namespace ffi = tvm::ffi;

constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kInt32{kDLInt, 32, 1};

// Throws the error of class tvmlab.errors.InputError. Here the class is only a name; Python knows
// it, because the package has registered it there, and reads the line `where:` back.
template <typename... Parts>
[[noreturn]] void Refuse(const char* operand, const Parts&... what) {
  std::ostringstream text;
  (text << ... << what);
  TVM_FFI_THROW(tvmlab.InputError) << text.str() << "\n  where: qnn.quantize, operand " << operand;
}

// TVM's constants lie in plain host memory; one made by hand on a device, or with strides, does
// not, and is left alone.
bool Readable(const ffi::Tensor& tensor, DLDataType dtype) {
  return tensor.dtype() == dtype && tensor.IsContiguous() &&
         tensor.device().device_type == kDLCPU;
}

template <typename T>
T* Values(const ffi::Tensor& tensor) {
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

// The tensor as blocks, channels and rows. Even where one scale serves all channels, the axis has to
// exist: a wrong one tells of a broken import.
Layout SplitAt(const ffi::Tensor& data, int64_t axis) {
  const int64_t rank = data.ndim();
  const int64_t limit = std::max<int64_t>(rank, 1);  // a scalar's only axis is 0, or -1
  if (axis < -limit || axis >= limit) {
    Refuse("data", "axis ", axis, " is out of range for ", rank, " dimensions");
  }
  const int64_t split = axis < 0 ? axis + limit : axis;
  Layout layout{1, 1, 1};
  for (int64_t d = 0; d < rank; ++d) {
    (d < split ? layout.outer : d == split ? layout.channels : layout.inner) *= data.size(d);
  }
  return layout;
}

// Scales or zero points: one, or one a channel, and each of them `good`.
template <typename T, typename Good>
PerChannel<T> Parameters(const ffi::Tensor& tensor, const char* operand, int64_t channels,
                         Good good, const std::string& wanted) {
  const int64_t count = tensor.numel();
  if (tensor.ndim() > 1 || (count != 1 && count != channels)) {
    Refuse(operand, operand, " has ", count, " values in ", tensor.ndim(),
           " dimensions; one value is needed, or ", channels, ", one a channel");
  }
  const T* values = Values<const T>(tensor);
  for (int64_t c = 0; c < count; ++c) {
    if (!good(values[c])) {
      Refuse(operand, operand, " is ", values[c], " at channel ", c, "; ", wanted);
    }
  }
  return {values, count == 1};
}

template <typename Out>
ffi::Tensor FoldTo(const QuantizeCall& call) {
  constexpr int64_t kLow = std::numeric_limits<Out>::min();
  constexpr int64_t kHigh = std::numeric_limits<Out>::max();
  const Layout layout = SplitAt(call.data, call.axis);
  const auto scales = Parameters<float>(
      call.output_scale, "output_scale", layout.channels,
      [](float scale) { return scale > 0 && std::isfinite(scale); },
      "a scale is a finite float32 above zero");
  const auto zeros = Parameters<int32_t>(
      call.output_zero_point, "output_zero_point", layout.channels,
      [](int64_t zero) { return kLow <= zero && zero <= kHigh; },
      "it is a value of " + std::string(call.out_dtype) + ", " + std::to_string(kLow) + " to " +
          std::to_string(kHigh));
  // TVM allocates: a constant may outlive this library, so the code that frees it must not lie here.
  const auto allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  const auto out = allocate(ffi::Shape(call.data.shape()), ffi::StringToDLDataType(call.out_dtype),
                            DLDevice{kDLCPU, 0}, nullptr)
                       .cast<ffi::Tensor>();
  const int64_t nan =
      Quantize(Values<const float>(call.data), layout, scales, zeros, Values<Out>(out));
  if (nan >= 0) Refuse("data", "element ", nan, " of data is NaN, which no integer stands for");
  return out;
}

}  // namespace

ffi::Optional<ffi::Tensor> Fold(const QuantizeCall& call) {
  if (!Readable(call.data, kFloat32) || !Readable(call.output_scale, kFloat32) ||
      !Readable(call.output_zero_point, kInt32)) {
    return std::nullopt;
  }
  if (call.out_dtype == "int8") return FoldTo<int8_t>(call);
  if (call.out_dtype == "uint8") return FoldTo<uint8_t>(call);
  if (call.out_dtype == "int32") return FoldTo<int32_t>(call);
  return std::nullopt;
}

}  // namespace tvmlab
