// A network that runs: a package's library and program in TVM's virtual machine.
#ifndef TVMLAB_DEPLOY_NETWORK_H_
#define TVMLAB_DEPLOY_NETWORK_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <string>
#include <vector>

#include "package.h"

namespace tvmlab::deploy {

class Network {
 public:
  /*!
   * \brief Load a package that Open has checked; from here on its code runs.
   * \param package The package.
   * \param libraries Libraries to load before: an accelerator's, or more of TVM's functions.
   */
  Network(Package package, const std::vector<std::string>& libraries);

  /*!
   * \brief Refuse inputs whose number, dtypes or shapes are not the network's.
   * \param inputs What was read.
   * \param paths The file of each, to say which one does not fit.
   */
  void Check(const std::vector<tvm::ffi::Tensor>& inputs,
             const std::vector<std::string>& paths) const;

  /*! \brief Run; the fields of tuples stand one after the other. */
  std::vector<tvm::ffi::Tensor> Run(const std::vector<tvm::ffi::Tensor>& inputs);

 private:
  Package package_;
  tvm::ffi::Module machine_;
  tvm::ffi::Function main_;
};

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_NETWORK_H_
