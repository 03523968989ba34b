// Reads programs of the accelerator from a file, executes each with inputs that count upwards, and
// prints a line for each: "refused" and why, or "done" and a hash of the outputs. Without TVM, so
// that it can be built with the compiler's sanitizers.
//
// The file: for each program its number of bytes (uint32, little-endian) and the bytes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "machine.h"

using namespace tvmlab::npu;

static void Play(std::string_view bytes) {
  const Program program = Read(bytes);
  Verify(program);
  int64_t cycles = 0;
  for (const Counters& layer : Count(program)) cycles += layer.cycles;
  // Each of its own, so that the sanitizer sees an access beside it.
  std::vector<std::unique_ptr<uint8_t, void (*)(void*)>> memory;
  std::vector<void*> parameters;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.kind != Kind::kInput && tensor.kind != Kind::kOutput) continue;
    memory.emplace_back(static_cast<uint8_t*>(std::calloc(static_cast<size_t>(tensor.nbytes), 1)),
                        std::free);
    for (int64_t i = 0; i < std::min<int64_t>(tensor.nbytes, 1 << 16); ++i) {
      memory.back().get()[i] = static_cast<uint8_t>(i);
    }
    parameters.push_back(memory.back().get());
  }
  Machine(program, parameters).Run();
  std::string outputs;
  size_t next = 0;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.kind != Kind::kInput && tensor.kind != Kind::kOutput) continue;
    const auto* bytes = reinterpret_cast<const char*>(memory[next++].get());
    if (tensor.kind == Kind::kOutput) outputs.append(bytes, static_cast<size_t>(tensor.nbytes));
  }
  std::printf("done %zu %lld\n", std::hash<std::string>()(outputs), static_cast<long long>(cycles));
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (size_t at = 0; at + 4 <= all.size();) {
    uint32_t size;
    std::memcpy(&size, all.data() + at, sizeof size);
    at += sizeof size;
    // A copy of exactly these bytes, for the same reason.
    const std::vector<char> bytes(all.begin() + static_cast<std::ptrdiff_t>(at),
                                  all.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
    try {
      Play({bytes.data(), bytes.size()});
    } catch (const Refused& refused) {
      std::printf("refused %s: %s\n", refused.where.c_str(), refused.what());
    }
    std::fflush(stdout);
  }
}
