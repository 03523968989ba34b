// A package, as Executable.save of tvmlab writes it: checked, and in memory.
#ifndef TVMLAB_DEPLOY_PACKAGE_H_
#define TVMLAB_DEPLOY_PACKAGE_H_

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tvmlab::deploy {

struct Input {
  std::string name;
  // A name is a size that is only known at run time, the same wherever the name is.
  std::vector<std::variant<int64_t, std::string>> shape;
  DLDataType dtype;

  /*! \brief Write it like a declaration: "x: float32[1, n]". */
  std::string Text() const;
};

struct Package {
  std::string path;
  std::vector<Input> inputs;
  // Kinds of modules in it that a library of their own reads.
  std::vector<std::string> runtimes;
  // What it was compiled for, in words, and the threads that it was compiled for; 0 for any.
  std::string target;
  int64_t threads = 0;
  // The shared library and the virtual machine's program.
  std::string library, program;
};

/*!
 * \brief Read and check a package: its form, its sizes, its checksums. Nothing of it runs.
 *
 * The version of TVM that compiled it is not looked at: TVM's runtime library does not say its own,
 * and the headers' is of the day when this program was built.
 */
Package Open(const std::string& path);

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_PACKAGE_H_
