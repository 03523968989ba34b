#include "program.h"

#include <array>
#include <cstring>

#include "refused.h"

namespace tvmlab::npu {
namespace {

constexpr std::string_view kMagic("TVMLNPU\x01", 8);
// What all tensors of a kind together may take.
constexpr int64_t kMostBytes = int64_t{1} << 30;

// A place in the bytes. Little-endian machines only, as everything that TVM builds for here.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  std::string_view Take(size_t count) {
    Require(count <= left_.size(), "the program's bytes end too early");
    const auto taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  template <typename T>
  T Number() {
    T number;
    std::memcpy(&number, Take(sizeof number).data(), sizeof number);
    return number;
  }

  // How many things follow that take at least `least` bytes each.
  size_t Count(size_t least) {
    const auto count = Number<uint32_t>();
    Require(count <= left_.size() / least, "the program's bytes end too early");
    return count;
  }

  std::string_view left() const { return left_; }

 private:
  std::string_view left_;
};

Config ReadConfig(Reader& reader) {
  Config config;
  constexpr size_t kSizes = sizeof config / sizeof(int32_t);
  const size_t count = reader.Count(sizeof(int32_t));
  Require(count == kSizes, "the program has ", count, " sizes of a machine, not ", kSizes);
  std::memcpy(&config, reader.Take(sizeof config).data(), sizeof config);
  constexpr int32_t kMost = 1 << 16;
  Between("rows", config.rows, 1, 256);
  Between("columns", config.columns, 1, 256);
  Between("lanes", config.lanes, 1, 1024);
  Between("sram_bytes", config.sram_bytes, 1, 64 << 20);
  Between("accumulators", config.accumulators, 1, 16 << 20);
  Between("dma_bytes_per_cycle", config.dma_bytes_per_cycle, 1, kMost);
  Between("dma_burst_bytes", config.dma_burst_bytes, 1, kMost);
  Between("dma_latency", config.dma_latency, 1, kMost);
  Between("vector_latency", config.vector_latency, 1, kMost);
  Between("clock_mhz", config.clock_mhz, 1, kMost);
  return config;
}

Tensor ReadTensor(Reader& reader) {
  const auto kind = reader.Number<uint8_t>(), dtype = reader.Number<uint8_t>();
  Between("a tensor's kind", kind, 0, 3);
  Between("a tensor's dtype", dtype, 0, 3);
  Tensor tensor{static_cast<Kind>(kind), static_cast<Dtype>(dtype), {}, 0};
  tensor.nbytes = Bytes(tensor.dtype);
  const auto dimensions = reader.Number<uint16_t>();
  for (int i = 0; i < dimensions; ++i) {
    const auto size = reader.Number<int32_t>();
    Between("a tensor's dimension", size, 1, kMostBytes);
    tensor.shape.push_back(size);
    tensor.nbytes = Product(tensor.nbytes, size);
  }
  return tensor;
}

std::vector<Tensor> ReadTensors(Reader& reader) {
  std::vector<Tensor> tensors(reader.Count(4));
  std::array<int64_t, 4> bytes{}, number{};
  for (Tensor& tensor : tensors) {
    tensor = ReadTensor(reader);
    ++number[static_cast<size_t>(tensor.kind)];
    auto& sum = bytes[static_cast<size_t>(tensor.kind)];
    sum += tensor.nbytes;
    Require(sum <= kMostBytes, "the tensors of a kind take more than ", kMostBytes, " bytes");
  }
  Require(number[0] <= 1, "the program has ", number[0], " tensors of constants");
  return tensors;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<uint8_t>(text[0]);
    const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if ((first >= 0x80 && first < 0xC2) || first > 0xF4 || text.size() < length) return false;
    uint32_t code = length == 1 ? first : first & (0x7F >> length);
    for (size_t i = 1; i < length; ++i) {
      const auto next = static_cast<uint8_t>(text[i]);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3F);
    }
    const uint32_t least = length == 3 ? 0x800 : length == 4 ? 0x10000 : 0;
    if (code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::vector<Instruction> ReadInstructions(Reader& reader) {
  const size_t words = reader.Count(sizeof(int32_t));
  Reader inside(reader.Take(words * sizeof(int32_t)));
  std::vector<Instruction> instructions;
  while (!inside.left().empty()) {
    const auto opcode = inside.Number<int32_t>();
    bool known = false;
    ForEachKind([&](auto instruction) {
      if (instruction.kOpcode != opcode) return;
      known = true;
      Require(sizeof instruction <= inside.left().size(), "the last instruction is cut off");
      std::memcpy(&instruction, inside.Take(sizeof instruction).data(), sizeof instruction);
      instructions.emplace_back(instruction);
    });
    Require(known, "instruction ", instructions.size(), " has the unknown opcode ", opcode);
  }
  return instructions;
}

}  // namespace

Program Read(std::string_view bytes) {
  Reader reader(bytes);
  Require(bytes.substr(0, kMagic.size()) == kMagic, "these bytes are no program");
  reader.Take(kMagic.size());
  const auto crc = reader.Number<uint32_t>();
  Require(crc == Crc32(reader.left()), "the program is damaged: its checksum is wrong");
  Program program;
  program.config = ReadConfig(reader);
  program.tensors = ReadTensors(reader);
  program.layers = static_cast<int64_t>(reader.Count(2));
  for (int64_t i = 0; i < program.layers; ++i) {
    Require(IsUtf8(reader.Take(reader.Number<uint16_t>())), "the name of layer ", i,
            " is no UTF-8");
  }
  program.instructions = ReadInstructions(reader);
  const auto constants = reader.Take(reader.Count(1));
  Require(reader.left().empty(), "the program's bytes go on after its end");
  program.constants.assign(constants.begin(), constants.end());
  int64_t expected = 0;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.kind == Kind::kConstants) expected = tensor.nbytes;
  }
  Require(expected == static_cast<int64_t>(constants.size()), "the program has ", constants.size(),
          " bytes of constants; its tensors say ", expected);
  return program;
}

// Eight bytes a step: constants are megabytes.
uint32_t Crc32(std::string_view bytes) {
  static const auto tables = [] {
    std::array<std::array<uint32_t, 256>, 8> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
      made[0][i] = crc;
    }
    for (size_t t = 1; t < 8; ++t) {
      for (size_t i = 0; i < 256; ++i) {
        made[t][i] = made[t - 1][i] >> 8 ^ made[0][made[t - 1][i] & 255];
      }
    }
    return made;
  }();
  uint32_t crc = ~0u;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][word >> 8 * i & 255];
    bytes.remove_prefix(8);
  }
  for (const char byte : bytes) {
    crc = crc >> 8 ^ tables[0][(crc ^ static_cast<uint8_t>(byte)) & 255];
  }
  return ~crc;
}

}  // namespace tvmlab::npu
