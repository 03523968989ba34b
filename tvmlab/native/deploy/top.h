// The largest numbers of a network's output.
#ifndef TVMLAB_DEPLOY_TOP_H_
#define TVMLAB_DEPLOY_TOP_H_

#include <tvm/ffi/container/tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace tvmlab::deploy {

struct Ranked {
  // Along all axes but the last, and along the last: a picture of a batch, and a class.
  size_t row, place;
  double value;
};

/*!
 * \brief The largest numbers of each row, the largest first; the lower place of two that are equal.
 *        Numbers that are none come last.
 * \return Nothing where the output is of a dtype that C++ has no numbers for, as float8.
 */
std::optional<std::vector<Ranked>> Top(const tvm::ffi::Tensor& output, size_t count);

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_TOP_H_
