#include <fcntl.h>
#include <sched.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "deploy.h"

namespace tvmlab::deploy {
namespace {

namespace ffi = tvm::ffi;

// TVM logs "Warning: Scope Loaded:" for every program with constants, and means nothing by it.
// What goes wrong comes as an exception.
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

// Hyperthreads of one core count once; a processor whose core nobody names is one.
size_t Cores(const cpu_set_t& usable) {
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::string package, core;
    std::ifstream(topology + "physical_package_id") >> package;
    std::ifstream(topology + "core_id") >> core;
    if (core.empty()) core = "cpu " + std::to_string(cpu);
    cores.insert(package.append(" ").append(core));
  }
  return cores.size();
}

// TVM's pool would take half of the processors, in case they are hyperthreads; it reads the
// variable when the first kernel runs. Where the target has no number, every core gets a thread, as
// in Python.
void SetThreads(int64_t wanted) {
  if (std::getenv("TVM_NUM_THREADS") || std::getenv("OMP_NUM_THREADS")) return;
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) == 0) {
    wanted = wanted > 0 ? std::min<int64_t>(wanted, CPU_COUNT(&usable))
                        : static_cast<int64_t>(Cores(usable));
  }
  if (wanted > 0) setenv("TVM_NUM_THREADS", std::to_string(wanted).c_str(), 0);
}

// The system's loader would search its own folders for a name without a folder.
ffi::Module LoadLibrary(const std::string& path, const char* fix) try {
  return ffi::Module::LoadFromFile(std::filesystem::absolute(path).string());
} catch (const ffi::Error& error) {
  throw Refused("a library cannot be loaded here: " + std::string(error.message()), path, fix);
}

ffi::Module Start(const Package& package, const std::vector<std::string>& libraries) {
  if (!package.runtimes.empty() && libraries.empty()) {
    throw Refused("it has parts for " + package.runtimes[0] + ", which needs a library of its own",
                  package.path, "name that library: --library FILE");
  }
  SetThreads(package.threads);
  for (const std::string& library : libraries) {
    LoadLibrary(library, "check the path, and that it was built for this machine");
  }
  const Quiet quiet;
  const ffi::Module executable = LoadLibrary(package.path, "compile the model for this machine");
  auto machine = executable->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  const int cpu = kDLCPU, number = 0, pooled = 2;
  machine->GetFunction("vm_initialization").value()(cpu, number, pooled);
  return machine;
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

Network::Network(Package package, const std::vector<std::string>& libraries)
    : package_(std::move(package)),
      machine_(Start(package_, libraries)),
      main_(machine_->GetFunction("main").value()) {}

void Network::Check(const std::vector<ffi::Tensor>& inputs,
                    const std::vector<std::string>& paths) const {
  std::vector<std::string> takes;
  for (const Input& input : package_.inputs) {
    takes.push_back(input.name + ": " + input.dtype + "[" + Joined(input.shape) + "]");
  }
  const auto refuse = [&](const std::string& what, const std::string& where) {
    throw Refused(what, where,
                  takes.empty() ? "give no input" : "let the inputs be " + Joined(takes));
  };
  if (inputs.size() != takes.size()) {
    refuse(std::to_string(inputs.size()) + " inputs were given, " + std::to_string(takes.size()) +
               " are taken",
           package_.path);
  }
  std::map<std::string, std::string> sizes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& declared = package_.inputs[i];
    const std::string dtype = ffi::DLDataTypeToString(inputs[i].dtype());
    if (dtype != declared.dtype) {
      refuse("input " + declared.name + " is of dtype " + dtype, paths[i]);
    }
    std::vector<std::string> shape;
    for (const int64_t size : inputs[i].shape()) shape.push_back(std::to_string(size));
    bool fits = shape.size() == declared.shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      const std::string& size = declared.shape[d];
      const bool named = !std::isdigit(static_cast<unsigned char>(size[0]));
      // A name stands for the first size that it meets.
      fits = shape[d] == (named ? sizes.emplace(size, shape[d]).first->second : size);
    }
    if (!fits) {
      refuse("input " + declared.name + " has the shape [" + Joined(shape) + "]", paths[i]);
    }
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
