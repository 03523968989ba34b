// The interface to TVM: a runtime module of kind "tvmlab_npu", which TVM saves inside a library and
// loads back, and a function that counts.
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "machine.h"

namespace {

namespace ffi = tvm::ffi;
using namespace tvmlab::npu;

// Runs `use`; converts a refusal to tvmlab.errors.SimulationError, in the format that
// tvmlab.ir.dialect parses.
template <typename Use>
auto Translated(const Use& use) try {
  return use();
} catch (const Refused& refused) {
  TVM_FFI_THROW(tvmlab.SimulationError) << refused.what() << "\n  where: " << refused.where;
  TVM_FFI_UNREACHABLE();
}

// Returns the address of a parameter's bytes, after checking it against the table.
void* Check(const ffi::AnyView& argument, const Tensor& expected, const std::string& name) {
  const auto view = argument.try_cast<ffi::TensorView>();
  if (!view) TVM_FFI_THROW(tvmlab.InputError) << name << " is not a tensor";
  const auto code = static_cast<uint8_t>(expected.dtype == Dtype::kUInt8 ? kDLUInt : kDLInt);
  const DLDataType dtype{code, static_cast<uint8_t>(8 * Bytes(expected.dtype)), 1};
  const ffi::Shape shape(expected.shape);
  if (view->dtype() != dtype) {
    TVM_FFI_THROW(tvmlab.InputError) << name << " must be " << ffi::DLDataTypeToString(dtype)
                                     << ", not " << ffi::DLDataTypeToString(view->dtype());
  }
  if (!std::equal(view->shape().begin(), view->shape().end(), shape.begin(), shape.end())) {
    TVM_FFI_THROW(tvmlab.InputError)
        << name << " must have the shape " << shape << ", not " << view->shape();
  }
  const auto device = view->device().device_type;
  if (!view->IsContiguous() || (device != kDLCPU && device != kDLCUDAHost)) {
    TVM_FFI_THROW(tvmlab.InputError) << name << " must be contiguous, in host memory: copy it";
  }
  return static_cast<char*>(view->data_ptr()) + view->byte_offset();
}

Program Verified(const std::string& bytes) {
  Program program = Read(bytes);
  Verify(program);
  return program;
}

// Immutable after construction, so any number of calls can run at once.
class NpuModule : public ffi::ModuleObj {
 public:
  NpuModule(std::string symbol, std::string bytes)
      : symbol_(std::move(symbol)), bytes_(std::move(bytes)), program_(Verified(bytes_)) {}

  const char* kind() const final { return "tvmlab_npu"; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kRunnable;
  }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (std::string(name) != symbol_) return std::nullopt;
    return ffi::Function::FromPacked(
        [self = ffi::GetObjectPtr<NpuModule>(this)](ffi::PackedArgs arguments, ffi::Any*) {
          self->Call(arguments);
        });
  }

  // The serialized module: the symbol's length, the symbol, the program.
  ffi::Bytes SaveToBytes() const final {
    const auto length = static_cast<uint32_t>(symbol_.size());
    const std::string head(reinterpret_cast<const char*>(&length), sizeof length);
    return ffi::Bytes(head + symbol_ + bytes_);
  }

 private:
  void Call(ffi::PackedArgs arguments) const {
    std::vector<void*> parameters;
    int32_t count = 0;
    for (const Tensor& tensor : program_.tensors) {
      if (tensor.kind != Kind::kInput && tensor.kind != Kind::kOutput) continue;
      const int32_t i = count++;
      if (i >= arguments.size()) continue;
      const auto name = symbol_ + (tensor.kind == Kind::kInput ? ": input " : ": output ") +
                        std::to_string(i) + " (in the order of all parameters)";
      parameters.push_back(Check(arguments[i], tensor, name));
    }
    if (arguments.size() != count) {
      TVM_FFI_THROW(tvmlab.InputError)
          << symbol_ << " takes " << count << " tensors, not " << arguments.size();
    }
    Translated([&] { Machine(program_, parameters).Run(); });
  }

  std::string symbol_, bytes_;
  Program program_;
};

ffi::Module MakeModule(const std::string& symbol, const ffi::Bytes& program) {
  return Translated(
      [&] { return ffi::Module(ffi::make_object<NpuModule>(symbol, std::string(program))); });
}

// Reads the symbol and the program that SaveToBytes wrote.
std::pair<std::string, ffi::Bytes> Split(const ffi::Bytes& saved) {
  const std::string bytes(saved);
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), std::min(bytes.size(), sizeof length));
  Translated([&] {
    Require(length + sizeof length <= bytes.size(), "the saved module's bytes end too early");
  });
  return {bytes.substr(sizeof length, length), ffi::Bytes(bytes.substr(sizeof length + length))};
}

ffi::Module LoadFromBytes(const ffi::Bytes& saved) {
  const auto [symbol, program] = Split(saved);
  return MakeModule(symbol, program);
}

ffi::Array<ffi::Any> Described(const ffi::Module& module) {
  const auto [symbol, program] = Split(module->SaveToBytes());
  return {ffi::String(symbol), program};
}

// Returns all counters of a layer, then those of the next.
ffi::Array<int64_t> CountLayers(const ffi::Bytes& bytes) {
  return Translated([&] {
    const std::vector<Counters> layers = Count(Verified(std::string(bytes)));
    const auto* first = reinterpret_cast<const int64_t*>(layers.data());
    return ffi::Array<int64_t>(first, first + layers.size() * sizeof(Counters) / sizeof *first);
  });
}

ffi::Array<int64_t> CyclesOf(const ffi::Bytes& bytes) {
  return Translated([&] {
    const std::vector<int64_t> cycles = Cycles(Read({bytes.data(), bytes.size()}));
    return ffi::Array<int64_t>(cycles.begin(), cycles.end());
  });
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("ffi.Module.load_from_bytes.tvmlab_npu", LoadFromBytes);
}

// The macro's functions have unused parameters.
#pragma GCC diagnostic ignored "-Wunused-parameter"
TVM_FFI_DLL_EXPORT_TYPED_FUNC(make_module, MakeModule)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(described, Described)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(count, CountLayers)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cycles, CyclesOf)
