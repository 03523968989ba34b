// Packages of tvmlab, arrays in files, and networks that run, without Python.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tvmlab::deploy {

// What is wrong with an input: what, where, and how to fix it.
struct Refused : std::runtime_error {
  Refused(const std::string& what, std::string where, std::string fix)
      : std::runtime_error(what), where(std::move(where)), fix(std::move(fix)) {}
  std::string where, fix;
};

/*! \brief Read a whole file; an error calls it `name`. */
std::string Contents(const std::string& path, const std::string& name);

/*! \brief Read an array from a .npy file: numbers or truth values, little-endian, in C order. */
tvm::ffi::Tensor ReadNpy(const std::string& path);

/*! \brief Write a tensor as a .npy file. */
void WriteNpy(const std::string& path, const tvm::ffi::Tensor& tensor);

class Network {
 public:
  /*! \brief Check a package's checksum and processor; load it, and before it the libraries. */
  Network(std::string path, const std::vector<std::string>& libraries);

  /*! \brief Refuse inputs, read from these files, that are not what the network takes. */
  void Check(const std::vector<tvm::ffi::Tensor>& inputs,
             const std::vector<std::string>& paths) const;

  /*! \brief Run; the fields of tuples come one after the other. */
  std::vector<tvm::ffi::Tensor> Run(const std::vector<tvm::ffi::Tensor>& inputs);

 private:
  struct Input {
    std::string name, dtype;
    // Numbers, and names of sizes that are only known at run time: equal names are equal sizes.
    std::vector<std::string> shape;
  };

  std::string path_;
  std::vector<Input> inputs_;
  tvm::ffi::Optional<tvm::ffi::Module> machine_;
  tvm::ffi::Function main_;
};

}  // namespace tvmlab::deploy
