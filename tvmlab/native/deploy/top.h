// The largest numbers of a network's output.
#ifndef TVMLAB_DEPLOY_TOP_H_
#define TVMLAB_DEPLOY_TOP_H_

#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tvmlab::deploy {

/*!
 * \brief The places and values of the largest numbers, the largest first; the lower place of two
 *        that are equal. Numbers that are none come last.
 * \return Empty where the output is of a dtype that is not understood here, as float16.
 */
std::vector<std::pair<int64_t, double>> Top(const tvm::ffi::Tensor& output, size_t count);

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_TOP_H_
