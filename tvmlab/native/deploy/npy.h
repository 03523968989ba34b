// Arrays in files of NumPy's format (.npy), as tensors of tvm-ffi on the CPU.
#ifndef TVMLAB_DEPLOY_NPY_H_
#define TVMLAB_DEPLOY_NPY_H_

#include <tvm/ffi/container/tensor.h>

#include <string>

namespace tvmlab::deploy {

/*! \brief Read an array: numbers or truth values, little-endian, in C order. */
tvm::ffi::Tensor ReadNpy(const std::string& path);

/*! \brief Write a tensor; the file appears whole or not at all. */
void WriteNpy(const std::string& path, const tvm::ffi::Tensor& tensor);

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_NPY_H_
