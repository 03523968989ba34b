#include <fcntl.h>
#include <sched.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "deploy.h"

namespace tvmlab::deploy {
namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

// What follows the library: the description, its length (8 bytes), the CRC-32 of all bytes before
// the checksum, and the magic number, whose last byte is the number of the format.
constexpr std::string_view kMagic("TVMLAB\0\5", 8);
constexpr size_t kEnd = 8 + sizeof(uint32_t) + kMagic.size();

// What LLVM calls the processors that this program is built for; empty for others.
#if defined(__x86_64__)
constexpr std::string_view kProcessor = "x86_64";
#elif defined(__aarch64__)
constexpr std::string_view kProcessor = "aarch64";
#else
constexpr std::string_view kProcessor = "";
#endif

uint32_t Crc32(std::string_view bytes) {
  std::array<uint32_t, 256> table;
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320 : 0);
    table[byte] = value;
  }
  uint32_t sum = ~uint32_t{0};
  for (const char byte : bytes) {
    sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(byte)) & 255];
  }
  return ~sum;
}

json::Object Description(const std::string& path) {
  const std::string package = Contents(path, "the package");
  const std::string_view whole = package;
  if (whole.size() < kEnd || whole.substr(whole.size() - kMagic.size()) != kMagic) {
    throw Refused("it has no description of format " + std::to_string(kMagic.back()) +
                      " at its end: it was cut off, or this version of tvmlab did not save it",
                  path, "copy the file again, or save the executable again");
  }
  uint64_t length;
  uint32_t checksum;
  std::memcpy(&length, &whole[whole.size() - kEnd], sizeof length);
  std::memcpy(&checksum, &whole[whole.size() - kEnd + sizeof length], sizeof checksum);
  if (Crc32(whole.substr(0, whole.size() - kMagic.size() - sizeof checksum)) != checksum) {
    throw Refused("the checksum is wrong: the file is damaged", path,
                  "copy the file again, or save the executable again");
  }
  return json::Parse(ffi::String(package.substr(whole.size() - kEnd - length, length)))
      .cast<json::Object>();
}

template <typename T>
T Field(const json::Object& object, const char* name) {
  return object.at(ffi::String(name)).cast<T>();
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// TVM logs "Warning: Scope Loaded:" for every program with constants. Errors come as exceptions.
class Quiet {
 public:
  Quiet() : kept_(dup(STDERR_FILENO)) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
  }
  Quiet(const Quiet&) = delete;
  ~Quiet() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }

 private:
  int kept_;
};

// TVM's pool would take half of the processors, in case they are hyperthreads; it reads the
// variable when the first kernel runs. Without a number in the target every core gets a thread, as
// in Python.
void SetThreads(int64_t wanted) {
  if (std::getenv("TVM_NUM_THREADS") || std::getenv("OMP_NUM_THREADS")) return;
  cpu_set_t usable;
  CPU_ZERO(&usable);
  sched_getaffinity(0, sizeof usable, &usable);
  std::set<std::string> cores;  // the hyperthreads of each
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    std::string siblings = "of " + std::to_string(cpu);
    std::ifstream("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                  "/topology/thread_siblings_list") >>
        siblings;
    cores.insert(siblings);
  }
  const auto most = wanted > 0 ? CPU_COUNT(&usable) : static_cast<int64_t>(cores.size());
  const auto threads = wanted > 0 ? std::min<int64_t>(wanted, most) : most;
  if (threads > 0) setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 0);
}

// The system's loader would search its own folders for a name without a folder.
ffi::Module LoadLibrary(const std::string& path, const char* fix) try {
  return ffi::Module::LoadFromFile(std::filesystem::absolute(path).string());
} catch (const ffi::Error& error) {
  throw Refused("a library cannot be loaded here: " + std::string(error.message()), path, fix);
}

void Collect(const ffi::Any& value, std::vector<ffi::Tensor>& into) {
  if (const auto tensor = value.try_cast<ffi::Tensor>()) {
    into.push_back(*tensor);
  } else if (const auto fields = value.try_cast<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& field : *fields) Collect(field, into);
  } else {
    throw Refused("the network returns something else than tensors: " + value.GetTypeKey(), "main",
                  "let it return tensors");
  }
}

}  // namespace

Network::Network(std::string path, const std::vector<std::string>& libraries)
    : path_(std::move(path)) {
  const json::Object description = Description(path_);
  const auto target = Field<json::Object>(description, "target");
  const auto triple = target.Get(ffi::String("mtriple"));
  const std::string processor = triple ? triple->cast<ffi::String>() : "";
  if (triple && !kProcessor.empty() && processor.substr(0, processor.find('-')) != kProcessor) {
    throw Refused("it was compiled for a processor of " + processor + ", and this one is of " +
                      std::string(kProcessor),
                  path_, "compile the model for this machine");
  }
  const auto runtimes = Field<json::Array>(description, "runtimes");
  if (!runtimes.empty() && libraries.empty()) {
    throw Refused("it has parts for " + std::string(runtimes[0].cast<ffi::String>()) +
                      ", which needs a library of its own",
                  path_, "name that library: --library FILE");
  }
  for (const json::Value& value : Field<json::Array>(description, "inputs")) {
    const auto fields = value.cast<json::Object>();
    Input input{Field<ffi::String>(fields, "name"), Field<ffi::String>(fields, "dtype"), {}};
    for (const json::Value& size : Field<json::Array>(fields, "shape")) {
      const auto number = size.try_cast<int64_t>();
      input.shape.push_back(number ? std::to_string(*number)
                                   : std::string(size.cast<ffi::String>()));
    }
    inputs_.push_back(input);
  }
  const auto cores = target.Get(ffi::String("num-cores"));
  SetThreads(cores ? cores->cast<int64_t>() : 0);
  for (const std::string& library : libraries) {
    LoadLibrary(library, "check the path, and that it was built for this machine");
  }
  const Quiet quiet;
  const ffi::Module executable = LoadLibrary(path_, "compile the model for this machine");
  auto machine = executable->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  const int cpu = kDLCPU, number = 0, pooled = 2;
  machine->GetFunction("vm_initialization").value()(cpu, number, pooled);
  machine_ = machine;
  main_ = machine->GetFunction("main").value();
}

void Network::Check(const std::vector<ffi::Tensor>& inputs,
                    const std::vector<std::string>& paths) const {
  std::vector<std::string> takes;
  for (const Input& input : inputs_) {
    takes.push_back(input.name + ": " + input.dtype + "[" + Joined(input.shape) + "]");
  }
  const auto refuse = [&](const std::string& what, const std::string& where) {
    throw Refused(what, where, "let the inputs be " + Joined(takes));
  };
  if (inputs.size() != takes.size()) {
    refuse(std::to_string(inputs.size()) + " inputs were given, " + std::to_string(takes.size()) +
               " are taken",
           path_);
  }
  std::map<std::string, std::string> sizes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& declared = inputs_[i];
    const std::string dtype = ffi::DLDataTypeToString(inputs[i].dtype());
    if (dtype != declared.dtype)
      refuse("input " + declared.name + " is of dtype " + dtype, paths[i]);
    std::vector<std::string> shape;
    for (const int64_t size : inputs[i].shape()) shape.push_back(std::to_string(size));
    bool fits = shape.size() == declared.shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      // A number stands for itself, a name for the first size that it meets.
      const std::string& size = declared.shape[d];
      const bool number = std::isdigit(static_cast<unsigned char>(size[0]));
      fits = shape[d] == sizes.emplace(size, number ? size : shape[d]).first->second;
    }
    if (!fits)
      refuse("input " + declared.name + " has the shape [" + Joined(shape) + "]", paths[i]);
  }
}

std::vector<ffi::Tensor> Network::Run(const std::vector<ffi::Tensor>& inputs) {
  std::vector<ffi::AnyView> arguments(inputs.begin(), inputs.end());
  ffi::Any result;
  main_.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  std::vector<ffi::Tensor> outputs;
  Collect(result, outputs);
  return outputs;
}

}  // namespace tvmlab::deploy
