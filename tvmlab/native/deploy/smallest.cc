// The least that runs a compiled network from C++: one float32 image of a digit, few checks.
//   smallest ./digits.so x.npy
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

int main(int argc, char** argv) try {
  if (argc != 3) TVM_FFI_THROW(ValueError) << "usage: smallest ./digits.so x.npy";
  // The library holds machine code, the weights, and the program of the virtual machine.
  auto library = ffi::Module::LoadFromFile(argv[1]);
  auto machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  const int pooled = 2;  // memory is kept from call to call
  machine->GetFunction("vm_initialization").value()(int{kDLCPU}, 0, pooled);
  // An image of a digit: float32, after NumPy's header of 128 bytes.
  auto x = ffi::Tensor::FromNDAlloc(Aligned(), {1, 1, 8, 8}, {kDLFloat, 32, 1}, {kDLCPU, 0});
  std::ifstream file(argv[2], std::ios::binary);
  file.seekg(128).read(static_cast<char*>(x.data_ptr()), x.numel() * 4);
  if (!file) TVM_FFI_THROW(ValueError) << "there is no image of 8 by 8 pixels in " << argv[2];
  auto y = machine->GetFunction("main").value()(x).cast<ffi::Tensor>();
  std::cout << std::hexfloat;
  for (int i = 0; i < y.numel(); ++i) std::cout << static_cast<float*>(y.data_ptr())[i] << "\n";
} catch (const ffi::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
