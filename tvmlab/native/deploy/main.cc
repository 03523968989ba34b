// Runs a package of tvmlab without Python.
//
// The exit status is 0 for success, 1 for an error (standard error describes the error, its place
// and the fix), 2 for an invalid command line.
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <sys/utsname.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

struct Refused {
  std::string what, where, fix;
};

// Returns the bytes of a file; an error message calls the file `name`.
std::string Contents(const std::string& path, const std::string& name) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);  // an error for a folder, too
  std::ifstream file(path, std::ios::binary);
  std::string contents(error ? 0 : size, '\0');
  if (error || !file.read(contents.data(), static_cast<std::streamsize>(contents.size()))) {
    throw Refused{name + " cannot be read: " + (error ? error.message() : "no permission"), path,
                  "check the path"};
  }
  return contents;
}

// Version 1.0 of the format: the magic number, the length of the header in two bytes, the header.
const std::string kNumPy("\x93NUMPY\1\0", 8);
constexpr size_t kHeader = 10;
// NumPy's type letters, indexed by DLPack's type codes.
constexpr std::string_view kKinds = "iuf   b";

// Reads an array from a .npy file: numbers or truth values, little-endian, in C order.
ffi::Tensor ReadNpy(const std::string& path) {
  const std::string file = Contents(path, "the input");
  size_t start = kHeader;
  if (file.size() >= start) {
    start += static_cast<unsigned char>(file[8]) | static_cast<unsigned char>(file[9]) << 8;
  }
  const bool whole = file.size() >= start && file.compare(0, kNumPy.size(), kNumPy) == 0;
  const std::string header = whole ? file.substr(kHeader, start - kHeader) : "";
  char kind[2] = "", size[2] = "";
  int at = 0;
  std::sscanf(header.c_str(),
              "{'descr': '%*1[<|]%1[fiub]%1[1248]', 'fortran_order': False, 'shape': (%n", kind,
              size, &at);
  bool fits = at > 0;
  std::vector<int64_t> shape;
  int64_t bytes = size[0] - '0';
  std::istringstream sizes(header.substr(static_cast<size_t>(at)));
  for (int64_t one; fits && sizes >> one; sizes.ignore()) {
    fits = one >= 0 && !__builtin_mul_overflow(bytes, one, &bytes);
    shape.push_back(one);
  }
  if (!fits || static_cast<uint64_t>(bytes) != file.size() - start) {
    throw Refused{"the file is truncated, or not an array that this program reads", path,
                  "write it with numpy.save: numbers, in C order, little-endian"};
  }
  const DLDataType dtype{static_cast<uint8_t>(kKinds.find(kind[0])),
                         static_cast<uint8_t>(8 * (size[0] - '0')), 1};
  // TVM's own allocator, because compiled code needs data aligned to 64 bytes.
  const auto allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  auto tensor =
      allocate(ffi::Shape(shape), dtype, DLDevice{kDLCPU, 0}, nullptr).cast<ffi::Tensor>();
  file.copy(static_cast<char*>(tensor.data_ptr()), file.size() - start, start);
  return tensor;
}

void WriteNpy(const std::string& path, const ffi::Tensor& tensor) {
  const DLDataType dtype = tensor.dtype();
  if (dtype.code >= kKinds.size() || kKinds[dtype.code] == ' ' || dtype.bits % 8 != 0) {
    throw Refused{"NumPy has no dtype " + std::string(ffi::DLDataTypeToString(dtype)), path,
                  "leave --output out, or let the model return a dtype of NumPy's"};
  }
  std::ostringstream header;
  header << "{'descr': '" << (dtype.bits == 8 ? '|' : '<') << kKinds[dtype.code] << dtype.bits / 8
         << "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : tensor.shape()) header << size << ", ";
  header << "), }";
  // The data start at a multiple of 64 bytes, after the end of a line.
  std::string text = header.str();
  text.resize((kHeader + text.size() + 64) / 64 * 64 - kHeader - 1, ' ');
  const size_t length = text.size() + 1;
  std::ofstream file(path, std::ios::binary);
  file << kNumPy << static_cast<char>(length & 255) << static_cast<char>(length >> 8) << text
       << '\n';
  file.write(static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset(),
             static_cast<std::streamsize>(ffi::GetDataSize(tensor)));
  file.close();
  if (!file) {
    throw Refused{"the output cannot be written", path, "choose an existing folder with space"};
  }
}

// The end of the file: the description, its length (8 bytes), the CRC-32 of all bytes before
// the checksum, and the magic number, whose last byte is the number of the format.
constexpr std::string_view kMagic("TVMLAB\0\6", 8);
constexpr size_t kEnd = 8 + sizeof(uint32_t) + kMagic.size();

uint32_t Crc32(std::string_view bytes) {
  uint32_t table[256];
  for (uint32_t byte = 0; byte < 256; ++byte) {
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
    throw Refused{"it has no description of format " + std::to_string(kMagic.back()) +
                      " at its end: it was cut off, or this version of tvmlab did not save it",
                  path, "copy the file again, or save the executable again"};
  }
  const size_t end = whole.size() - kEnd;
  uint64_t length;
  uint32_t checksum;
  std::memcpy(&length, &whole[end], sizeof length);
  std::memcpy(&checksum, &whole[end + sizeof length], sizeof checksum);
  if (Crc32(whole.substr(0, end + sizeof length)) != checksum) {
    throw Refused{"the checksum is wrong: the file is damaged", path,
                  "copy the file again, or save the executable again"};
  }
  return json::Parse(package.substr(end - length, length)).cast<json::Object>();
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
  ~Quiet() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }

 private:
  int kept_;
};

// By default, TVM's pool uses half of the processors, in case they are hyperthreads. TVM reads the
// variable when the first kernel runs. Without a number in the target, use one thread per core, as
// in Python.
void SetThreads(int64_t wanted) {
  if (std::getenv("TVM_NUM_THREADS") || std::getenv("OMP_NUM_THREADS")) return;
  cpu_set_t usable;
  CPU_ZERO(&usable);
  sched_getaffinity(0, sizeof usable, &usable);
  std::set<std::string> cores;  // the hyperthreads of each
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    std::string core = "cpu" + std::to_string(cpu);
    std::ifstream("/sys/devices/system/cpu/" + core + "/topology/thread_siblings_list") >> core;
    cores.insert(core);
  }
  const int64_t threads = wanted > 0 ? std::min<int64_t>(wanted, CPU_COUNT(&usable))
                                     : static_cast<int64_t>(cores.size());
  setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 0);
}

// For a name without a folder, the system's loader would search its own folders.
ffi::Module LoadLibrary(const std::string& path, const char* fix) try {
  return ffi::Module::LoadFromFile(std::filesystem::absolute(path).string());
} catch (const ffi::Error& error) {
  throw Refused{"a library cannot be loaded here: " + std::string(error.message()), path, fix};
}

void Collect(const ffi::Any& value, std::vector<ffi::Tensor>& into) {
  if (const auto tensor = value.try_cast<ffi::Tensor>()) {
    into.push_back(*tensor);
  } else {
    for (const ffi::Any& field : value.cast<ffi::Array<ffi::Any>>()) Collect(field, into);
  }
}

class Network {
 public:
  // Checks a package's checksum and processor; loads it, and before it the libraries.
  Network(std::string path, const std::vector<std::string>& libraries) : path_(std::move(path)) {
    const json::Object description = Description(path_);
    const auto target = Field<json::Object>(description, "target");
    const auto triple = target.Get(ffi::String("mtriple"));
    const std::string processor = triple ? triple->cast<ffi::String>() : "";
    utsname here;
    uname(&here);
    if (triple && processor.substr(0, processor.find('-')) != here.machine) {
      throw Refused{"it was compiled for a processor of " + processor + ", and this one is of " +
                        here.machine,
                    path_, "compile the model for this machine"};
    }
    const auto runtimes = Field<json::Array>(description, "runtimes");
    if (!runtimes.empty() && libraries.empty()) {
      throw Refused{"it uses modules of the kind " + std::string(runtimes[0].cast<ffi::String>()) +
                        ", which need a library of their own",
                    path_, "load that library with --library FILE"};
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
    for (const auto& [name, size] : Field<json::Object>(description, "most")) {
      most_[name.cast<ffi::String>()] = size.cast<int64_t>();
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

  // Rejects input files that do not match the network's inputs.
  void Check(const std::vector<ffi::Tensor>& inputs, const std::vector<std::string>& paths) const {
    std::vector<std::string> takes;
    for (const Input& input : inputs_) {
      takes.push_back(input.name + ": " + input.dtype + "[" + Joined(input.shape) + "]");
    }
    const auto refuse = [&](const std::string& what, const std::string& where) {
      throw Refused{what, where, "pass inputs " + Joined(takes)};
    };
    if (inputs.size() != takes.size()) {
      refuse(std::to_string(inputs.size()) + " inputs were passed, expected " +
                 std::to_string(takes.size()),
             path_);
    }
    // Each size, and the input that it is first read from.
    std::map<std::string, std::pair<std::string, size_t>> sizes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Input& declared = inputs_[i];
      const auto wrong = [&](const std::string& what) {
        refuse("input " + declared.name + what, paths[i]);
      };
      const std::string dtype = ffi::DLDataTypeToString(inputs[i].dtype());
      if (dtype != declared.dtype) wrong(" is of dtype " + dtype);
      std::vector<std::string> shape;
      for (const int64_t size : inputs[i].shape()) shape.push_back(std::to_string(size));
      bool fits = shape.size() == declared.shape.size();
      for (size_t d = 0; fits && d < shape.size(); ++d) {
        // A number must match; a name gets the first size that it meets.
        const std::string& size = declared.shape[d];
        const bool number = size.find_first_not_of("0123456789") == std::string::npos;
        const auto known = sizes.emplace(size, std::pair(number ? size : shape[d], i)).first;
        fits = shape[d] == known->second.first;
      }
      if (!fits) wrong(" has the shape [" + Joined(shape) + "]");
    }
    for (const auto& [name, most] : most_) {
      const auto found = sizes.find(name);
      if (found == sizes.end()) continue;
      const auto& [size, i] = found->second;
      if (std::stoll(size) > most) {
        throw Refused{"size " + name + " of input " + inputs_[i].name + " is " + size +
                          ", but the model was exported for at most " + std::to_string(most),
                      paths[i], "pass a smaller input, or export the model with a larger bound"};
      }
    }
  }

  // Runs the network; flattens tuples into their fields.
  std::vector<ffi::Tensor> Run(const std::vector<ffi::Tensor>& inputs) {
    std::vector<ffi::AnyView> arguments(inputs.begin(), inputs.end());
    ffi::Any result;
    main_.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
    std::vector<ffi::Tensor> outputs;
    Collect(result, outputs);
    return outputs;
  }

 private:
  struct Input {
    std::string name, dtype;
    // Numbers, and names of sizes that are only known at run time: equal names are equal sizes.
    std::vector<std::string> shape;
  };

  std::string path_;
  std::vector<Input> inputs_;
  std::map<std::string, int64_t> most_;
  ffi::Optional<ffi::Module> machine_;
  ffi::Function main_;
};

constexpr char kUsage[] =
    "deploy PACKAGE [INPUT.npy ...]\n"
    "  --top N          print the N largest numbers of the first output's rows, the row in\n"
    "                   front where there are several (5)\n"
    "  --labels FILE    names for them, one per line\n"
    "  --output FOLDER  write the outputs there: 0.npy, 1.npy, ...\n"
    "  --repeats N      time N calls after the first (10)\n"
    "  --library FILE   load a library first: an accelerator's, or one with more TVM functions\n";

struct Options {
  std::string package, labels, output;
  std::vector<std::string> inputs, libraries;
  size_t top = 5, repeats = 10;
};

[[noreturn]] void ExitWithUsage(const std::string& wrong) {
  std::fprintf(stderr, "%s\n%s", wrong.c_str(), kUsage);
  std::exit(2);
}

size_t Count(const std::string& text) {
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && *end == '\0') return count;
  ExitWithUsage("'" + text + "' is not a number");
}

Options Read(int argc, char** argv) {
  static const option kOptions[] = {{"top", required_argument, nullptr, 't'},
                                    {"labels", required_argument, nullptr, 'l'},
                                    {"output", required_argument, nullptr, 'o'},
                                    {"repeats", required_argument, nullptr, 'r'},
                                    {"library", required_argument, nullptr, 'b'},
                                    {"help", no_argument, nullptr, 'h'},
                                    {}};
  Options options;
  for (int found; (found = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (found) {
      case 't': options.top = Count(optarg); break;
      case 'l': options.labels = optarg; break;
      case 'o': options.output = optarg; break;
      case 'r': options.repeats = Count(optarg); break;
      case 'b': options.libraries.emplace_back(optarg); break;
      case 'h': std::fputs(kUsage, stdout); std::exit(0);
      default: ExitWithUsage("");  // getopt_long has printed the error
    }
  }
  if (optind == argc) ExitWithUsage("the package is missing");
  options.package = argv[optind];
  options.inputs.assign(argv + optind + 1, argv + argc);
  return options;
}

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream file(path.empty() ? "" : Contents(path, "the labels"));
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Compiled code can have instructions that another processor of the same family lacks.
void OnIllegalInstruction(int) {
  constexpr char words[] =
      "this processor lacks an instruction that the package was compiled with\n"
      "  to do: compile the model for this processor\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, words, sizeof words - 1);
  _exit(1);
}

template <typename T>
double Number(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<double>(value);
}

// Prints the largest numbers of each row, NaNs last.
void Print(const ffi::Tensor& output, size_t count, const std::vector<std::string>& labels) {
  static const std::map<std::string, double (*)(const char*)> kNumbers = {
      {"float32", Number<float>},   {"float64", Number<double>},  {"bool", Number<uint8_t>},
      {"int8", Number<int8_t>},     {"int16", Number<int16_t>},   {"int32", Number<int32_t>},
      {"int64", Number<int64_t>},   {"uint8", Number<uint8_t>},   {"uint16", Number<uint16_t>},
      {"uint32", Number<uint32_t>}, {"uint64", Number<uint64_t>},
  };
  const std::string dtype = ffi::DLDataTypeToString(output.dtype());
  const auto number = kNumbers.find(dtype);
  if (number == kNumbers.end()) {
    throw Refused{"the numbers of the first output, of dtype " + dtype + ", cannot be listed",
                  "main", "leave them out with --top 0"};
  }
  const auto all = static_cast<size_t>(output.numel());
  const size_t classes = output.ndim() == 0 ? 1 : static_cast<size_t>(output.shape().back());
  const char* bytes = static_cast<const char*>(output.data_ptr()) + output.byte_offset();
  std::vector<double> row(classes);
  std::vector<size_t> order(classes);
  for (size_t start = 0; start < all; start += classes) {
    for (double& one : row) {
      one = number->second(bytes);
      bytes += output.dtype().bits / 8;
    }
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return row[a] > row[b] || (std::isnan(row[b]) && !std::isnan(row[a]));
    });
    for (size_t i = 0; i < std::min(count, classes); ++i) {
      const size_t place = order[i];
      if (all > classes) std::printf("%4zu ", start / classes);
      std::printf("%8zu  %12.6g  %s\n", place, row[place],
                  place < labels.size() ? labels[place].c_str() : "");
    }
  }
}

double Median(Network& network, const std::vector<ffi::Tensor>& inputs, size_t repeats) {
  std::vector<double> times(repeats);
  for (double& time : times) {
    const auto start = std::chrono::steady_clock::now();
    network.Run(inputs);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    time = taken.count();
  }
  std::sort(times.begin(), times.end());
  return (times[(repeats - 1) / 2] + times[repeats / 2]) / 2;
}

void Deploy(const Options& options) {
  const std::vector<std::string> labels = Lines(options.labels);
  Network network(options.package, options.libraries);
  std::vector<ffi::Tensor> inputs;
  for (const std::string& path : options.inputs) inputs.push_back(ReadNpy(path));
  network.Check(inputs, options.inputs);
  const std::vector<ffi::Tensor> outputs = network.Run(inputs);
  if (!outputs.empty() && options.top > 0) Print(outputs[0], options.top, labels);
  for (size_t i = 0; !options.output.empty() && i < outputs.size(); ++i) {
    WriteNpy(options.output + "/" + std::to_string(i) + ".npy", outputs[i]);
  }
  if (options.repeats > 0) {
    std::printf("%.3f ms per call, the median of %zu\n", Median(network, inputs, options.repeats),
                options.repeats);
  }
  if (std::fflush(stdout) != 0) {
    throw Refused{"the output cannot be printed", "standard output",
                  "redirect it to a file or program that can be written to"};
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::signal(SIGILL, OnIllegalInstruction);
  Deploy(Read(argc, argv));
  return 0;
} catch (const Refused& refused) {
  std::fprintf(stderr, "%s\n  where: %s\n  to do: %s\n", refused.what.c_str(),
               refused.where.c_str(), refused.fix.c_str());
  return 1;
} catch (const std::exception& error) {  // TVM's own, from inside of the network
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
