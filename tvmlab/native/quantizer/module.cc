// The interface to TVM: checks every argument, then calls Quantize.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "quantize.h"

namespace tvmlab {
namespace {

namespace ffi = tvm::ffi;

constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kInt32{kDLInt, 32, 1};

void RequireType(const ffi::TensorView& view, DLDataType dtype, const char* name) {
  if (view.dtype() != dtype) {
    TVM_FFI_THROW(TypeError) << name << " must be " << ffi::DLDataTypeToString(dtype) << ", not "
                             << ffi::DLDataTypeToString(view.dtype());
  }
}

// Returns the values of a plain host tensor, after checking its dtype, device and strides.
template <typename T>
T* Values(const ffi::TensorView& view, const char* name) {
  if (view.device().device_type != kDLCPU && view.device().device_type != kDLCUDAHost) {
    TVM_FFI_THROW(ValueError) << name << " must be in host memory, and is on device type "
                              << static_cast<int>(view.device().device_type);
  }
  if (!view.IsContiguous()) {
    TVM_FFI_THROW(ValueError) << name << " must be contiguous: copy it first";
  }
  return reinterpret_cast<T*>(static_cast<char*>(view.data_ptr()) + view.byte_offset());
}

// Scales or zero points: one value (rank 0, or one element), or one for each channel.
template <typename T>
PerChannel<T> Parameters(const ffi::TensorView& view, DLDataType dtype, const char* name,
                         int64_t channels) {
  RequireType(view, dtype, name);
  const T* values = Values<T>(view, name);
  if (view.ndim() > 1 || (view.numel() != 1 && view.numel() != channels)) {
    TVM_FFI_THROW(ValueError) << name << " must hold 1 value, or " << channels
                              << " (one per channel) in one dimension; it holds " << view.numel()
                              << " in " << view.ndim();
  }
  return {values, view.numel() == 1};
}

Layout SplitAt(const ffi::TensorView& x, int64_t axis) {
  const int64_t rank = x.ndim();
  // A scalar has no axis of its own; 0 and -1 are taken as its one value.
  const int64_t limit = rank > 0 ? rank : 1;
  if (axis < -limit || axis >= limit) {
    TVM_FFI_THROW(ValueError) << "axis " << axis << " is out of range for a tensor of rank "
                              << rank;
  }
  Layout layout{1, 1, 1};
  const int64_t split = axis < 0 ? axis + limit : axis;
  for (int64_t d = 0; d < rank; ++d) {
    (d < split ? layout.outer : d == split ? layout.channels : layout.inner) *= x.size(d);
  }
  return layout;
}

template <typename Out>
void Fill(const float* in, Layout layout, PerChannel<float> scale, PerChannel<int32_t> zero_point,
          const ffi::TensorView& out) {
  const int64_t nan = Quantize(in, layout, scale, zero_point, Values<Out>(out, "out"));
  if (nan >= 0) {
    TVM_FFI_THROW(ValueError) << "element " << nan << " of x is NaN, which no integer stands for";
  }
}

}  // namespace

// The caller owns `out`: nothing allocated here outlives the library.
void QuantizeInto(ffi::TensorView x, ffi::TensorView scale, ffi::TensorView zero_point,
                  int64_t axis, ffi::TensorView out) {
  RequireType(x, kFloat32, "x");
  const float* in = Values<float>(x, "x");
  const Layout layout = SplitAt(x, axis);
  const auto scales = Parameters<float>(scale, kFloat32, "scale", layout.channels);
  const auto zeros = Parameters<int32_t>(zero_point, kInt32, "zero_point", layout.channels);
  for (int64_t c = 0; c < scale.numel(); ++c) {
    if (!(scales[c] > 0) || std::isinf(scales[c])) {
      TVM_FFI_THROW(ValueError) << "scale must be positive and finite; scale[" << c << "] is "
                                << scales[c];
    }
  }
  if (!std::equal(x.shape().begin(), x.shape().end(), out.shape().begin(), out.shape().end())) {
    TVM_FFI_THROW(ValueError) << "out has shape " << out.shape() << ", and x has " << x.shape();
  }
  const std::string dtype = ffi::DLDataTypeToString(out.dtype());
  if (dtype == "int8") return Fill<int8_t>(in, layout, scales, zeros, out);
  if (dtype == "uint8") return Fill<uint8_t>(in, layout, scales, zeros, out);
  if (dtype == "int16") return Fill<int16_t>(in, layout, scales, zeros, out);
  if (dtype == "int32") return Fill<int32_t>(in, layout, scales, zeros, out);
  TVM_FFI_THROW(TypeError) << "out must be int8, uint8, int16 or int32, and is " << dtype;
}

}  // namespace tvmlab

using tvmlab::QuantizeInto;

// The macro's function has an unused parameter.
#pragma GCC diagnostic ignored "-Wunused-parameter"
TVM_FFI_DLL_EXPORT_TYPED_FUNC(quantize, QuantizeInto)
