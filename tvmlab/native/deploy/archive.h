// A tar archive, read from its beginning: plain files whose names and greatest sizes are known.
#ifndef TVMLAB_DEPLOY_ARCHIVE_H_
#define TVMLAB_DEPLOY_ARCHIVE_H_

#include <cstdint>
#include <fstream>
#include <string>

namespace tvmlab::deploy {

class Archive {
 public:
  explicit Archive(const std::string& path);

  /*!
   * \brief Read the next file of the archive into memory.
   * \param name What it has to be called.
   * \param most How many bytes it may have.
   */
  std::string Read(const std::string& name, int64_t most);

 private:
  [[noreturn]] void Refuse(const std::string& what) const;

  std::string path_;
  std::ifstream file_;
  int64_t left_;
};

}  // namespace tvmlab::deploy

#endif  // TVMLAB_DEPLOY_ARCHIVE_H_
