// The description at the end of a package, a shared library that Executable.save of tvmlab writes.
#ifndef TVMLAB_DEPLOY_PACKAGE_H_
#define TVMLAB_DEPLOY_PACKAGE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tvmlab::deploy {

struct Input {
  std::string name, dtype;
  // Numbers, and names of sizes that are only known at run time: equal names are equal sizes.
  std::vector<std::string> shape;

  /*! \brief Write it like a declaration: "x: float32[1, n]". */
  std::string Text() const;
};

/*! \brief Write a list: "1, n". */
std::string Joined(const std::vector<std::string>& words);

struct Package {
  std::string path;
  std::vector<Input> inputs;
  // Kinds of modules in it that a library of their own reads.
  std::vector<std::string> runtimes;
  // The threads that it was compiled for; 0 for any number.
  int64_t threads = 0;
};

/*!
 * \brief Check every byte of a package, and that it is for this kind of processor.
 *
 * Nothing of it runs. The version of TVM that compiled it is not compared, because TVM's runtime
 * library does not tell its own.
 */
Package Open(const std::string& path);

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_PACKAGE_H_
