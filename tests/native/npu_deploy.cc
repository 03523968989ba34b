// Runs a network on the accelerator's simulator and on the CPU, without Python.
//
//   npu_deploy SIMULATOR LIBRARY INPUT OUTPUT
//
// The simulator's library is loaded first: it registers how modules of its kind are read. INPUT
// holds uint8 [1, 4, 3, 3], and so will OUTPUT.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>

namespace ffi = tvm::ffi;

struct Allocator {
  void AllocData(DLTensor* tensor) { tensor->data = std::malloc(ffi::GetDataSize(*tensor)); }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::cerr << "npu_deploy SIMULATOR LIBRARY INPUT OUTPUT\n";
    return 2;
  }
  ffi::Module simulator = ffi::Module::LoadFromFile(argv[1]);
  ffi::Module library = ffi::Module::LoadFromFile(argv[2]);
  ffi::Module machine =
      library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  const int cpu = kDLCPU, pooled = 2;
  machine->GetFunction("vm_initialization").value()(cpu, 0, pooled, cpu, 0, pooled);

  ffi::Tensor input =
      ffi::Tensor::FromNDAlloc(Allocator(), {1, 4, 3, 3}, DLDataType{kDLUInt, 8, 1}, {kDLCPU, 0});
  std::ifstream in(argv[3], std::ios::binary);
  if (!in.read(static_cast<char*>(input.data_ptr()), input.numel())) {
    std::cerr << "the input is too short\n";
    return 2;
  }
  ffi::Tensor output = machine->GetFunction("main").value()(input).cast<ffi::Tensor>();
  std::ofstream(argv[4], std::ios::binary)
      .write(static_cast<const char*>(output.data_ptr()), output.numel());
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
