// What is wrong with an input, in words: what, where, and what to do about it.
#ifndef TVMLAB_DEPLOY_REFUSED_H_
#define TVMLAB_DEPLOY_REFUSED_H_

#include <stdexcept>
#include <string>
#include <utility>

namespace tvmlab::deploy {

struct Refused : std::runtime_error {
  Refused(const std::string& what, std::string where, std::string fix)
      : std::runtime_error(what), where(std::move(where)), fix(std::move(fix)) {}
  std::string where, fix;
};

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_REFUSED_H_
