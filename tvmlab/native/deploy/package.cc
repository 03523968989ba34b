#include "package.h"

#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "archive.h"
#include "refused.h"
#include "sha256.h"

namespace tvmlab::deploy {
namespace {

namespace json = tvm::ffi::json;
using tvm::ffi::String;

constexpr int64_t kFormat = 4, kMostMetadata = int64_t{1} << 20, kMostBytes = int64_t{4} << 30;
// The metadata begin with the checksum of the text after it; brackets in it go no deeper than this.
const std::string kBefore = "{\"sha256\": \"";
constexpr size_t kDigits = 64;
constexpr int kDeepest = 64;

// What LLVM calls the processors that this program is built for; empty for others.
#if defined(__x86_64__)
constexpr std::string_view kProcessor = "x86_64";
#elif defined(__aarch64__)
constexpr std::string_view kProcessor = "aarch64";
#else
constexpr std::string_view kProcessor = "";
#endif

template <typename T>
T Field(const json::Object& object, const char* name) {
  return object.at(String(name)).cast<T>();
}

// A terminal does what control characters say: a name with them can clear the screen, or fake a
// line.
std::string Name(const String& text) {
  std::string name = text;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    const auto next = i + 1 < name.size() ? static_cast<unsigned char>(name[i + 1]) : 0;
    if (byte < 0x20 || byte == 0x7f || (byte == 0xc2 && next >= 0x80 && next < 0xa0)) {
      TVM_FFI_THROW(ValueError) << "there are control characters in its names";
    }
  }
  return name;
}

Input ReadInput(const json::Object& said) {
  Input input{Name(Field<String>(said, "name")),
              {},
              tvm::ffi::StringToDLDataType(Field<String>(said, "dtype"))};
  for (const json::Value& size : Field<json::Array>(said, "shape")) {
    if (const auto number = size.try_cast<int64_t>()) {
      input.shape.emplace_back(*number);
    } else {
      input.shape.emplace_back(Name(size.cast<String>()));
    }
  }
  return input;
}

void Check(const std::string& path, const json::Object& files, const char* name,
           const std::string& content) {
  const auto said = Field<json::Object>(files, name);
  if (Field<int64_t>(said, "bytes") != static_cast<int64_t>(content.size()) ||
      std::string(Field<String>(said, "sha256")) != Sha256(content)) {
    throw Refused("the checksum of " + std::string(name) + " is wrong: the file is damaged", path,
                  "save or copy it again");
  }
}

// TVM's parser calls itself for each bracket, and the stack ends somewhere.
bool TooDeep(const std::string& text) {
  int depth = 0, deepest = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest > kDeepest;
}

json::Object Metadata(const std::string& path, const std::string& text) {
  const size_t after = kBefore.size() + kDigits;
  if (text.size() < after || text.compare(0, kBefore.size(), kBefore) != 0 ||
      text.compare(kBefore.size(), kDigits, Sha256(std::string_view(text).substr(after))) != 0) {
    throw Refused("the metadata are damaged, or of another format", path,
                  "save the executable again");
  }
  if (TooDeep(text)) throw Refused("the metadata are no description", path, "save it again");
  const auto said = json::Parse(text).cast<json::Object>();
  if (const auto format = Field<int64_t>(said, "format"); format != kFormat) {
    throw Refused("the package's format is " + std::to_string(format) + ", this program reads " +
                      std::to_string(kFormat),
                  path, "save the executable again, or build this program again");
  }
  return said;
}

}  // namespace

std::string Input::Text() const {
  std::string text = name + ": " + std::string(tvm::ffi::DLDataTypeToString(dtype)) + "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto* number = std::get_if<int64_t>(&shape[i]);
    text += (i ? ", " : "") + (number ? std::to_string(*number) : std::get<std::string>(shape[i]));
  }
  return text + "]";
}

Package Open(const std::string& path) try {
  Archive archive(path);
  const json::Object said = Metadata(path, archive.Read("metadata.json", kMostMetadata));
  Package package;
  package.path = path;
  for (const json::Value& input : Field<json::Array>(said, "inputs")) {
    package.inputs.push_back(ReadInput(input.cast<json::Object>()));
  }
  for (const json::Value& kind : Field<json::Array>(said, "runtimes")) {
    package.runtimes.emplace_back(Name(kind.cast<String>()));
  }
  const auto target = Field<json::Object>(said, "target");
  package.target = json::Stringify(target);
  if (Field<String>(target, "kind") != "llvm") {
    throw Refused("it was compiled for " + std::string(Field<String>(target, "kind")) +
                      ", and this program runs on processors",
                  path, "compile the model for a target of kind llvm");
  }
  if (target.count(String("mtriple"))) {
    const std::string triple = Name(Field<String>(target, "mtriple"));
    const std::string processor = triple.substr(0, triple.find('-'));
    if (!kProcessor.empty() && processor != kProcessor) {
      throw Refused("it was compiled for a processor of " + triple + ", and this one is of " +
                        std::string(kProcessor),
                    path, "compile the model for this machine");
    }
  }
  if (target.count(String("num-cores"))) package.threads = Field<int64_t>(target, "num-cores");
  const auto files = Field<json::Object>(said, "files");
  package.library = archive.Read("lib.so", kMostBytes);
  Check(path, files, "lib.so", package.library);
  package.program = archive.Read("program.vm", kMostBytes);
  Check(path, files, "program.vm", package.program);
  return package;
} catch (const tvm::ffi::Error& error) {  // a field is missing, or is something else
  throw Refused("the metadata are no description: " + std::string(error.message()), path,
                "save the executable again");
}

}  // namespace tvmlab::deploy
