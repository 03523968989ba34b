#include "program.h"

#include <cstring>

namespace tvmlab::npu {
namespace {

constexpr std::string_view kMagic("TVMLNPU\x01", 8);

// A position in the bytes. Little-endian machines only, like all of TVM's targets here.
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
  T Next() {
    T value;
    std::memcpy(&value, Take(sizeof value).data(), sizeof value);
    return value;
  }

  bool AtEnd() const { return left_.empty(); }

 private:
  std::string_view left_;
};

// Calls use(opcode, instruction) with a default instruction of each kind.
template <typename Use, size_t... I>
void ForEachKind(const Use& use, std::index_sequence<I...>) {
  (use(I + 1, std::variant_alternative_t<I, Instruction>{}), ...);
}

Tensor ReadTensor(Reader& reader) {
  const auto kind = reader.Next<uint8_t>(), dtype = reader.Next<uint8_t>();
  Tensor tensor{static_cast<Kind>(kind), static_cast<Dtype>(dtype), {}, 0};
  tensor.nbytes = Bytes(tensor.dtype);
  for (int dimensions = reader.Next<uint16_t>(); dimensions > 0; --dimensions) {
    tensor.shape.push_back(reader.Next<int32_t>());
    tensor.nbytes *= tensor.shape.back();
  }
  return tensor;
}

std::vector<Instruction> ReadInstructions(Reader reader) {
  std::vector<Instruction> instructions;
  while (!reader.AtEnd()) {
    const auto found = reader.Next<uint32_t>();
    const size_t before = instructions.size();
    const auto read = [&](size_t opcode, auto kind) {
      if (opcode == found) instructions.emplace_back(reader.Next<decltype(kind)>());
    };
    ForEachKind(read, std::make_index_sequence<std::variant_size_v<Instruction>>{});
    Require(instructions.size() > before, "instruction ", before, " has the unknown opcode ",
            found);
  }
  return instructions;
}

}  // namespace

Program Read(std::string_view bytes) {
  Reader reader(bytes);
  Require(reader.Take(kMagic.size()) == kMagic, "these bytes are not a program");
  reader.Next<uint32_t>();  // a checksum, for readers in Python
  Program program;
  Require(reader.Next<uint32_t>() == sizeof(Config) / sizeof(int32_t),
          "the program is for a machine with another number of sizes");
  program.config = reader.Next<Config>();
  for (auto count = reader.Next<uint32_t>(); count > 0; --count) {
    program.tensors.push_back(ReadTensor(reader));
  }
  program.layers = reader.Next<uint32_t>();
  for (size_t i = 0; i < program.layers; ++i) reader.Take(reader.Next<uint16_t>());
  const size_t words = reader.Next<uint32_t>();
  program.instructions = ReadInstructions(Reader(reader.Take(words * sizeof(int32_t))));
  const auto constants = reader.Take(reader.Next<uint32_t>());
  program.constants.assign(constants.begin(), constants.end());
  for (const Tensor& tensor : program.tensors) {
    const bool fits = tensor.nbytes == static_cast<int64_t>(constants.size());
    Require(tensor.kind != Kind::kConstants || fits, "the program has ", constants.size(),
            " bytes of constants, not ", tensor.nbytes);
  }
  return program;
}

}  // namespace tvmlab::npu
