#include <tvm/ffi/dtype.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <string_view>
#include <system_error>

#include "deploy.h"

namespace tvmlab::deploy {
namespace {

// Version 1.0 of the format: the magic number, the length of the header in two bytes, the header.
const std::string kMagic("\x93NUMPY\1\0", 8);
constexpr size_t kHeader = 10;
// NumPy's letters at the places of DLPack's codes.
constexpr std::string_view kKinds = "iuf   b";

// Compiled code expects its data at a multiple of 64 bytes.
struct Aligned {
  void AllocData(DLTensor* tensor) {
    const size_t bytes = tvm::ffi::GetDataSize(*tensor);
    tensor->data = std::aligned_alloc(64, (bytes / 64 + 1) * 64);
    if (tensor->data == nullptr) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

}  // namespace

std::string Contents(const std::string& path, const std::string& name) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);  // an error for a folder, too
  std::ifstream file(path, std::ios::binary);
  std::string contents(error ? 0 : size, '\0');
  if (error || !file.read(contents.data(), static_cast<std::streamsize>(contents.size()))) {
    throw Refused(name + " cannot be read: " + (error ? error.message() : "no permission"), path,
                  "check the path");
  }
  return contents;
}

tvm::ffi::Tensor ReadNpy(const std::string& path) {
  const std::string file = Contents(path, "the input");
  size_t start = kHeader;
  if (file.size() >= start) {
    start += static_cast<unsigned char>(file[8]) | static_cast<unsigned char>(file[9]) << 8;
  }
  const bool whole = file.size() >= start && file.compare(0, kMagic.size(), kMagic) == 0;
  const std::string header = whole ? file.substr(kHeader, start - kHeader) : "";
  char kind[2] = "", size[2] = "";
  int at = 0;
  std::sscanf(header.c_str(),
              "{'descr': '%*1[<|]%1[fiub]%1[1248]', 'fortran_order': False, 'shape': (%n", kind,
              size, &at);
  bool fits = at > 0;
  std::vector<int64_t> shape;
  int64_t bytes = size[0] - '0';
  std::istringstream sizes(header.substr(static_cast<size_t>(at)));
  for (int64_t one; fits && sizes >> one; sizes.ignore()) {
    fits = one >= 0 && !__builtin_mul_overflow(bytes, one, &bytes);
    shape.push_back(one);
  }
  if (!fits || static_cast<uint64_t>(bytes) != file.size() - start) {
    throw Refused("it is no array that this program reads, or was cut off", path,
                  "write it with numpy.save: numbers, in C order, little-endian");
  }
  const DLDataType dtype{static_cast<uint8_t>(kKinds.find(kind[0])),
                         static_cast<uint8_t>(8 * (size[0] - '0')), 1};
  auto tensor =
      tvm::ffi::Tensor::FromNDAlloc(Aligned(), tvm::ffi::Shape(shape), dtype, {kDLCPU, 0});
  file.copy(static_cast<char*>(tensor.data_ptr()), file.size() - start, start);
  return tensor;
}

void WriteNpy(const std::string& path, const tvm::ffi::Tensor& tensor) {
  const DLDataType dtype = tensor.dtype();
  if (dtype.code >= kKinds.size() || kKinds[dtype.code] == ' ' || dtype.bits % 8 != 0) {
    throw Refused("NumPy has no such array: " + std::string(tvm::ffi::DLDataTypeToString(dtype)),
                  path, "leave --output out, or let the model return numbers that NumPy knows");
  }
  std::ostringstream header;
  header << "{'descr': '" << (dtype.bits == 8 ? '|' : '<') << kKinds[dtype.code] << dtype.bits / 8
         << "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : tensor.shape()) header << size << ", ";
  header << "), }";
  // The data start at a multiple of 64 bytes, after the end of a line.
  std::string text = header.str();
  text.resize((kHeader + text.size() + 64) / 64 * 64 - kHeader - 1, ' ');
  const size_t length = text.size() + 1;
  std::ofstream file(path, std::ios::binary);
  file << kMagic << static_cast<char>(length & 255) << static_cast<char>(length >> 8) << text
       << '\n';
  file.write(static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset(),
             static_cast<std::streamsize>(tvm::ffi::GetDataSize(tensor)));
  file.close();
  if (!file) {
    throw Refused("the output cannot be written", path, "choose an existing folder with space");
  }
}

}  // namespace tvmlab::deploy
