// One quantize of constants, computed: from the operator's three tensors to the tensor that takes
// its place. The arithmetic is the constant quantizer's (../quantizer); this is its border to TVM.
#ifndef TVMLAB_FOLD_H_
#define TVMLAB_FOLD_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

namespace tvmlab {

// What a call of relax.qnn.quantize has: three operands and two attributes, by the operator's names.
struct QuantizeCall {
  tvm::ffi::Tensor data;
  tvm::ffi::Tensor output_scale;
  tvm::ffi::Tensor output_zero_point;
  int64_t axis;
  tvm::ffi::String out_dtype;
};

// The quantized tensor, in memory of TVM's own. Nothing where the quantizer has no arithmetic for
// the dtypes: the call can stay. Throws tvmlab.InputError, with the operand's name, where the call
// means nothing: no such axis, no scale, a zero point that no value can have, a NaN.
tvm::ffi::Optional<tvm::ffi::Tensor> Fold(const QuantizeCall& call);

}  // namespace tvmlab

#endif  // TVMLAB_FOLD_H_
