#include "fold.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "../quantizer/quantize.h"

namespace tvmlab {
namespace {

namespace ffi = tvm::ffi;

constexpr DLDataType kFloat16{kDLFloat, 16, 1};
constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kInt32{kDLInt, 32, 1};

// Throws the error of class tvmlab.errors.InputError. Here the class is only a name; Python knows
// it, because the package has registered it there, and reads the line `where:` back.
template <typename... Parts>
[[noreturn]] void Refuse(const std::string& part, const Parts&... what) {
  std::ostringstream text;
  (text << ... << what);
  TVM_FFI_THROW(tvmlab.InputError) << text.str() << "\n  where: qnn.quantize, " << part;
}

// TVM's constants lie in plain host memory; one made by hand on a device, or with strides, does
// not, and is left alone.
bool Readable(const ffi::Tensor& tensor, DLDataType dtype) {
  return tensor.dtype() == dtype && tensor.IsContiguous() && tensor.device().device_type == kDLCPU;
}

template <typename T>
T* Values(const ffi::Tensor& tensor) {
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

// The tensor as blocks, channels and rows. The axis has to exist even where one scale serves all
// channels: a wrong one tells of a broken import.
Layout SplitAt(const ffi::Tensor& data, int64_t axis) {
  const int64_t rank = data.ndim();
  const int64_t limit = std::max<int64_t>(rank, 1);  // a scalar's only axis is 0, or -1
  if (axis < -limit || axis >= limit) {
    Refuse("attribute axis", "axis is ", axis, "; the data has ", rank, " dimensions");
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
PerChannel<T> Parameters(const ffi::Tensor& tensor, const std::string& name, int64_t channels,
                         Good good, const std::string& wanted) {
  const int64_t count = tensor.numel();
  if (tensor.ndim() > 1 || (count != 1 && count != channels)) {
    Refuse("operand " + name, name, " has ", count, " values in ", tensor.ndim(),
           " dimensions; one value is needed, or ", channels, ", one a channel");
  }
  const T* values = Values<const T>(tensor);
  for (int64_t c = 0; c < count; ++c) {
    if (!good(values[c])) {
      Refuse("operand " + name, name, " is ", values[c], " at channel ", c, "; ", wanted);
    }
  }
  return {values, count == 1};
}

// A float16 number, which C++17 has no type for: a sign, 5 bits of exponent, 10 of fraction.
float Widen(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  float value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  if (exponent == 0) value = std::ldexp(static_cast<float>(fraction), -24);
  if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
  return half >> 15 ? -value : value;
}

template <typename Out>
ffi::Tensor FoldTo(const QuantizeCall& call) {
  using Limits = std::numeric_limits<Out>;
  const Layout layout = SplitAt(call.data, call.axis);
  const auto scales = Parameters<float>(
      call.output_scale, "output_scale", layout.channels,
      [](float scale) { return scale > 0 && std::isfinite(scale); },
      "a scale is a finite float32 above zero");
  const auto zeros = Parameters<int32_t>(
      call.output_zero_point, "output_zero_point", layout.channels,
      [](int32_t zero) { return Limits::min() <= zero && zero <= Limits::max(); },
      "values of " + std::string(call.out_dtype) + " lie in " + std::to_string(Limits::min()) +
          " to " + std::to_string(Limits::max()));
  std::vector<float> widened;
  const float* in = Values<const float>(call.data);
  if (call.data.dtype() == kFloat16) {
    const auto* halves = Values<const uint16_t>(call.data);
    std::transform(halves, halves + call.data.numel(), std::back_inserter(widened), Widen);
    in = widened.data();
  }
  // TVM allocates: the code that frees a constant must not lie in a library that it may outlive.
  const auto allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  auto out = allocate(ffi::Shape(call.data.shape()), ffi::StringToDLDataType(call.out_dtype),
                      DLDevice{kDLCPU, 0}, nullptr)
                 .cast<ffi::Tensor>();
  int64_t nan;
  if constexpr (std::is_same_v<Out, int16_t>) {
    // The quantizer has no int16. What saturates at int32's ends first ends up at the same value.
    std::vector<int32_t> wide(static_cast<size_t>(out.numel()));
    nan = Quantize(in, layout, scales, zeros, wide.data());
    std::transform(wide.begin(), wide.end(), Values<Out>(out), [](int32_t value) {
      return static_cast<Out>(std::clamp<int32_t>(value, Limits::min(), Limits::max()));
    });
  } else {
    nan = Quantize(in, layout, scales, zeros, Values<Out>(out));
  }
  if (nan >= 0) {
    Refuse("operand data", "element ", nan, " of data is NaN, which no integer stands for");
  }
  return out;
}

}  // namespace

ffi::Optional<ffi::Tensor> Fold(const QuantizeCall& call) {
  if (!(Readable(call.data, kFloat32) || Readable(call.data, kFloat16)) ||
      !Readable(call.output_scale, kFloat32) || !Readable(call.output_zero_point, kInt32)) {
    return std::nullopt;
  }
  if (call.out_dtype == "int8") return FoldTo<int8_t>(call);
  if (call.out_dtype == "uint8") return FoldTo<uint8_t>(call);
  if (call.out_dtype == "int16") return FoldTo<int16_t>(call);
  if (call.out_dtype == "int32") return FoldTo<int32_t>(call);
  return std::nullopt;
}

}  // namespace tvmlab
