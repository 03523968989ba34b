#include "program.h"

#include <cstring>

#include "refused.h"

namespace tvmlab::npu {
namespace {

constexpr std::string_view kMagic("TVMLNPU\x01", 8);

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
  return config;
}

Tensor ReadTensor(Reader& reader) {
  const auto kind = reader.Number<uint8_t>(), dtype = reader.Number<uint8_t>();
  Tensor tensor{static_cast<Kind>(kind), static_cast<Dtype>(dtype), {}, 0};
  tensor.nbytes = Bytes(tensor.dtype);
  const auto dimensions = reader.Number<uint16_t>();
  for (int i = 0; i < dimensions; ++i) {
    tensor.shape.push_back(reader.Number<int32_t>());
    tensor.nbytes *= tensor.shape.back();
  }
  return tensor;
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
  reader.Take(sizeof(uint32_t));  // a checksum, for readers in Python
  Program program;
  program.config = ReadConfig(reader);
  program.tensors.resize(reader.Count(4));
  for (Tensor& tensor : program.tensors) tensor = ReadTensor(reader);
  program.layers = static_cast<int64_t>(reader.Count(2));
  for (int64_t i = 0; i < program.layers; ++i) reader.Take(reader.Number<uint16_t>());
  program.instructions = ReadInstructions(reader);
  const auto constants = reader.Take(reader.Count(1));
  Require(reader.left().empty(), "the program's bytes go on after its end");
  program.constants.assign(constants.begin(), constants.end());
  for (const Tensor& tensor : program.tensors) {
    Require(
        tensor.kind != Kind::kConstants || tensor.nbytes == static_cast<int64_t>(constants.size()),
        "the program has ", constants.size(), " bytes of constants, not ", tensor.nbytes);
  }
  return program;
}

}  // namespace tvmlab::npu
