#include "archive.h"

#include <array>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <system_error>

#include "refused.h"

namespace tvmlab::deploy {
namespace {

// The header of POSIX's ustar format: where its fields are, and how long.
constexpr size_t kHeader = 512, kName = 100, kSize = 124, kSum = 148, kType = 156;
constexpr size_t kSizeLength = 12, kSumLength = 8, kPrefix = 345, kPrefixLength = 155;

// An octal number, with spaces before it and a space or a null character after it; -1 for others.
int64_t Octal(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  text.remove_prefix(first == text.npos ? text.size() : first);
  const size_t end = text.find_first_not_of("01234567");
  if (end == 0 || end == text.npos || (text[end] != ' ' && text[end] != '\0')) return -1;
  int64_t value = 0;
  for (const char digit : text.substr(0, end)) value = value * 8 + (digit - '0');
  return value;  // 11 digits at most: it fits
}

}  // namespace

Archive::Archive(const std::string& path) : path_(path), file_(path, std::ios::binary) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);  // an error for a folder, too
  if (error || !file_) {
    throw Refused("the package cannot be read: " + (error ? error.message() : "no permission"),
                  path, "check the path");
  }
  left_ = static_cast<int64_t>(size);
}

std::string Archive::Read(const std::string& name, int64_t most) {
  std::array<char, kHeader> header;
  if (left_ < static_cast<int64_t>(kHeader) || !file_.read(header.data(), kHeader)) {
    Refuse("it ends before " + name);
  }
  left_ -= kHeader;
  const std::string_view all(header.data(), kHeader);
  const int64_t said = Octal(all.substr(kSum, kSumLength));
  // The checksum counts as spaces in the sum that it is of.
  int64_t sum = std::accumulate(all.begin(), all.end(), int64_t{0}, [](int64_t so_far, char byte) {
    return so_far + static_cast<unsigned char>(byte);
  });
  for (const char byte : all.substr(kSum, kSumLength)) {
    sum += ' ' - static_cast<unsigned char>(byte);
  }
  const std::string_view found = all.substr(0, all.substr(0, kName).find('\0'));
  const bool named =
      found == name && all.find_first_not_of('\0', kPrefix) >= kPrefix + kPrefixLength;
  if (said != sum || !named || (all[kType] != '0' && all[kType] != '\0')) {
    Refuse("there is no file " + name + " where it should be");
  }
  const int64_t size = Octal(all.substr(kSize, kSizeLength));
  if (size < 0 || size > most) Refuse(name + " is larger than " + std::to_string(most) + " bytes");
  if (size > left_) Refuse(name + " is cut off");
  std::string content(static_cast<size_t>(size), '\0');
  if (!file_.read(content.data(), size)) Refuse(name + " cannot be read");
  const auto blocks = static_cast<int64_t>(kHeader);
  const int64_t filled = (size + blocks - 1) / blocks * blocks;
  file_.seekg(filled - size, std::ios::cur);
  left_ -= filled;
  return content;
}

void Archive::Refuse(const std::string& what) const {
  throw Refused("this is no package of tvmlab, or it is damaged: " + what, path_,
                "save or copy it again");
}

}  // namespace tvmlab::deploy
