// The least that runs a compiled network from C++: no checks, one float32 image of a digit.
//   tar -xf digits.tar && smallest x.npy
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

namespace ffi = tvm::ffi;

struct Aligned {  // compiled code expects its data at a multiple of 64 bytes
  void AllocData(DLTensor* tensor) {
    tensor->data = std::aligned_alloc(64, (ffi::GetDataSize(*tensor) / 64 + 1) * 64);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

int main(int, char** argv) {
  // The library is machine code; the program calls it, and holds the weights.
  auto library = ffi::Module::LoadFromFile("./lib.so");
  auto read = ffi::Function::GetGlobalRequired("ffi.Module.load_from_file.relax.VMExecutable");
  auto program = read("program.vm").cast<ffi::Module>();
  for (const ffi::Any& part : library->imports()) program->ImportModule(part.cast<ffi::Module>());

  auto machine = program->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  const int pooled = 2;  // memory is kept from call to call
  machine->GetFunction("vm_initialization").value()(int{kDLCPU}, 0, pooled);

  const DLDataType float32{kDLFloat, 32, 1};
  auto x = ffi::Tensor::FromNDAlloc(Aligned(), {1, 1, 8, 8}, float32, {kDLCPU, 0});
  std::ifstream file(argv[1], std::ios::binary);
  file.seekg(128);  // NumPy's header
  file.read(static_cast<char*>(x.data_ptr()), x.numel() * 4);

  auto y = machine->GetFunction("main").value()(x).cast<ffi::Tensor>();
  std::cout << std::hexfloat;
  for (int i = 0; i < y.numel(); ++i) std::cout << static_cast<float*>(y.data_ptr())[i] << "\n";
}
