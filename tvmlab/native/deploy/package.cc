#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "deploy.h"

namespace tvmlab::deploy {
namespace {

namespace json = tvm::ffi::json;
using tvm::ffi::String;

// What follows the library: the description, its length, the CRC-32 of all bytes before the
// checksum, and the magic number, whose last byte is the number of the format.
constexpr int64_t kLength = 8, kChecksum = 4, kMagic = 8, kEnd = kLength + kChecksum + kMagic;
constexpr std::string_view kName("TVMLAB\0", 7);
constexpr int kFormat = 5;

// What LLVM calls the processors that this program is built for; empty for others.
#if defined(__x86_64__)
constexpr std::string_view kProcessor = "x86_64";
#elif defined(__aarch64__)
constexpr std::string_view kProcessor = "aarch64";
#else
constexpr std::string_view kProcessor = "";
#endif

uint32_t Crc32(std::ifstream& file, int64_t count) {
  std::array<uint32_t, 256> table;
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320 : 0);
    table[byte] = value;
  }
  uint32_t sum = ~uint32_t{0};
  std::vector<char> piece(1 << 20);
  file.seekg(0);
  for (int64_t left = count, some = 0; left > 0 && file; left -= some) {
    some = std::min<int64_t>(left, static_cast<int64_t>(piece.size()));
    file.read(piece.data(), some);
    for (int64_t i = 0; i < some; ++i) {
      sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(piece[i])) & 255];
    }
  }
  return ~sum;
}

json::Object Description(const std::string& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {  // an error for a folder, too
    throw Refused("the package cannot be read: " + (error ? error.message() : "no permission"),
                  path, "check the path");
  }
  if (std::filesystem::path(path).extension() != ".so") {
    throw Refused("a package is a shared library, and its name ends in .so", path,
                  "save the executable again under such a name");
  }
  std::array<char, kEnd> end{};
  file.seekg(std::max<int64_t>(size - kEnd, 0)).read(end.data(), kEnd);
  const char* magic = end.data() + kLength + kChecksum;
  if (!file || std::string_view(magic, kName.size()) != kName) {
    throw Refused("it has no description at its end: it was cut off, or tvmlab did not save it",
                  path, "copy the file again, or save the executable again");
  }
  if (const int format = static_cast<unsigned char>(magic[kName.size()]); format != kFormat) {
    throw Refused("the package's format is " + std::to_string(format) + ", this program reads " +
                      std::to_string(kFormat),
                  path, "save the executable again, or build this program again");
  }
  int64_t length;
  uint32_t checksum;
  std::memcpy(&length, end.data(), kLength);
  std::memcpy(&checksum, end.data() + kLength, kChecksum);
  if (Crc32(file, size - kChecksum - kMagic) != checksum) {
    throw Refused("the checksum is wrong: the file is damaged", path,
                  "copy the file again, or save the executable again");
  }
  std::string text(static_cast<size_t>(length), ' ');
  file.seekg(size - kEnd - length).read(text.data(), length);
  return json::Parse(text).cast<json::Object>();
}

template <typename T>
T Field(const json::Object& object, const char* name) {
  return object.at(String(name)).cast<T>();
}

Input ReadInput(const json::Object& fields) {
  Input input{Field<String>(fields, "name"), Field<String>(fields, "dtype"), {}};
  for (const json::Value& size : Field<json::Array>(fields, "shape")) {
    const auto number = size.try_cast<int64_t>();
    input.shape.push_back(number ? std::to_string(*number) : std::string(size.cast<String>()));
  }
  return input;
}

void ExpectTarget(const std::string& path, const json::Object& target) {
  const std::string kind = Field<String>(target, "kind");
  if (kind != "llvm") {
    throw Refused("it was compiled for " + kind + ", and this program runs on processors", path,
                  "compile the model for a target of kind llvm");
  }
  if (kProcessor.empty() || !target.count(String("mtriple"))) return;
  const std::string triple = Field<String>(target, "mtriple");
  if (triple.substr(0, triple.find('-')) != kProcessor) {
    throw Refused("it was compiled for a processor of " + triple + ", and this one is of " +
                      std::string(kProcessor),
                  path, "compile the model for this machine");
  }
}

}  // namespace

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

Package Open(const std::string& path) {
  const json::Object description = Description(path);
  const auto target = Field<json::Object>(description, "target");
  ExpectTarget(path, target);
  Package package;
  package.path = path;
  for (const json::Value& input : Field<json::Array>(description, "inputs")) {
    package.inputs.push_back(ReadInput(input.cast<json::Object>()));
  }
  for (const json::Value& kind : Field<json::Array>(description, "runtimes")) {
    package.runtimes.emplace_back(kind.cast<String>());
  }
  if (target.count(String("num-cores"))) package.threads = Field<int64_t>(target, "num-cores");
  return package;
}

}  // namespace tvmlab::deploy
