#include <tvm/ffi/dtype.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <regex>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "deploy.h"

namespace tvmlab::deploy {
namespace {

constexpr size_t kMostHeader = 1 << 16, kMostDimensions = 32;
const std::string kMagic = "\x93NUMPY";
constexpr std::array<std::pair<char, int>, 4> kKinds = {
    {{'f', kDLFloat}, {'i', kDLInt}, {'u', kDLUInt}, {'b', kDLBool}}};

// Compiled code takes for granted that its data begin at a multiple of 64 bytes.
struct Aligned {
  void AllocData(DLTensor* tensor) {
    const size_t bytes = tvm::ffi::GetDataSize(*tensor);
    tensor->data = std::aligned_alloc(64, (bytes / 64 + 1) * 64);
    if (tensor->data == nullptr) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

[[noreturn]] void Refuse(const std::string& what, const std::string& path) {
  throw Refused(what, path, "write it with numpy.save: numbers, in C order, little-endian");
}

// What NumPy writes of an array, as in {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
struct Header {
  DLDataType dtype{};
  std::vector<int64_t> shape;
};

Header ReadHeader(const std::string& text, const std::string& path) {
  static const std::regex form(
      R"(\{ *'descr' *: *'([<|])([fiub])([1248])' *, *'fortran_order' *: *(True|False) *, *)"
      R"('shape' *: *\(([0-9, ]*)\) *,? *\} *\n?)");
  std::smatch found;
  if (!std::regex_match(text, found, form)) Refuse("its dtype or its header is not known", path);
  if (found[4] == "True") Refuse("its order is Fortran's", path);
  Header header;
  for (const auto& [letter, code] : kKinds) {
    if (found[2] == std::string(1, letter)) header.dtype.code = static_cast<uint8_t>(code);
  }
  header.dtype.bits = static_cast<uint8_t>(8 * std::stoi(found[3]));
  header.dtype.lanes = 1;
  std::istringstream sizes(found[5]);
  for (std::string size; std::getline(sizes, size, ',');) {
    if (size.find_first_not_of(' ') == size.npos) continue;  // after the last comma
    if (size.size() > 18 || header.shape.size() == kMostDimensions) Refuse("it is too large", path);
    header.shape.push_back(std::stoll(size));
  }
  return header;
}

// Refuses an array whose bytes are not what is left of the file.
void CheckSize(const Header& header, uintmax_t left, const std::string& path) {
  const auto& shape = header.shape;
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  uintmax_t bytes = empty ? 0 : header.dtype.bits / 8U;
  for (const int64_t size : shape) {
    if (!empty && bytes > left / static_cast<uintmax_t>(size)) Refuse("it is cut off", path);
    bytes *= static_cast<uintmax_t>(size);
  }
  if (bytes != left) Refuse("its size is not what its header says", path);
}

}  // namespace

tvm::ffi::Tensor ReadNpy(const std::string& path) {
  std::error_code error;
  uintmax_t left = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    throw Refused("the input cannot be read: " + (error ? error.message() : "no permission"), path,
                  "check the path");
  }
  // Magic, version, and the header's length: 2 bytes in version 1, else 4.
  std::array<char, 12> start{};
  file.read(start.data(), 8);
  const bool old = start[6] == 1;
  if (!file || std::string(start.data(), kMagic.size()) != kMagic || start[6] < 1 || start[6] > 3) {
    Refuse("it is no .npy file", path);
  }
  const size_t count = old ? 2 : 4;
  file.read(start.data() + 8, static_cast<std::streamsize>(count));
  size_t length = 0;
  for (size_t i = count; i-- > 0;) length = length << 8 | static_cast<unsigned char>(start[8 + i]);
  if (!file || length > kMostHeader || 8 + count + length > left) Refuse("it is cut off", path);
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  left -= 8 + count + length;
  const Header header = ReadHeader(text, path);
  CheckSize(header, left, path);
  auto tensor = tvm::ffi::Tensor::FromNDAlloc(Aligned(), tvm::ffi::Shape(header.shape),
                                              header.dtype, DLDevice{kDLCPU, 0});
  file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(left));
  if (!file) Refuse("it cannot be read to its end", path);
  return tensor;
}

void WriteNpy(const std::string& path, const tvm::ffi::Tensor& tensor) {
  const DLDataType dtype = tensor.dtype();
  std::string kind;
  for (const auto& [letter, code] : kKinds) {
    if (dtype.code == code && dtype.lanes == 1 && dtype.bits % 8 == 0) kind = letter;
  }
  if (kind.empty() || !tensor.IsContiguous()) {
    throw Refused("NumPy has no such array: " + std::string(tvm::ffi::DLDataTypeToString(dtype)),
                  path, "leave --output out, or let the model return numbers that NumPy knows");
  }
  std::string header = std::string("{'descr': '") + (dtype.bits == 8 ? '|' : '<') + kind +
                       std::to_string(dtype.bits / 8) + "', 'fortran_order': False, 'shape': (";
  for (size_t d = 0; d < tensor.shape().size(); ++d) {
    header += (d ? ", " : "") + std::to_string(tensor.shape()[d]);
  }
  header += tensor.shape().size() == 1 ? ",), }" : "), }";  // a tuple of one has a comma
  // The data begin at a multiple of 64 bytes, after a line's end.
  const size_t length = (10 + header.size() + 1 + 63) / 64 * 64 - 10;
  header.resize(length - 1, ' ');
  header += '\n';
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary);
  file << kMagic << '\x01' << '\0' << static_cast<char>(length & 255)
       << static_cast<char>(length >> 8) << header;
  file.write(static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset(),
             static_cast<std::streamsize>(tvm::ffi::GetDataSize(tensor)));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  if (!file || error) {
    std::filesystem::remove(part, error);
    throw Refused("the output cannot be written", path, "choose an existing folder with space");
  }
}

}  // namespace tvmlab::deploy
