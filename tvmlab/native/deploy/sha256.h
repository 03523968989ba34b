// SHA-256, as FIPS 180-4 defines it.
#ifndef TVMLAB_DEPLOY_SHA256_H_
#define TVMLAB_DEPLOY_SHA256_H_

#include <string>
#include <string_view>

namespace tvmlab::deploy {

/*! \brief The checksum of some bytes, in 64 hexadecimal digits. */
std::string Sha256(std::string_view bytes);

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_SHA256_H_
