// Runs a package of tvmlab without Python.
//
// The exit status is 0 where all went well, 1 where something was refused (standard error says
// what, where, and what to do), 2 for a command line that is not understood.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "deploy.h"

namespace {

using namespace tvmlab::deploy;

constexpr char kUsage[] =
    "deploy PACKAGE [INPUT.npy ...]\n"
    "  --top N          print the N largest numbers of the first output's rows, the row in\n"
    "                   front where there are several (5)\n"
    "  --labels FILE    a name a line for them\n"
    "  --output FOLDER  write the outputs there: 0.npy, 1.npy, ...\n"
    "  --repeats N      time N calls after the first (10)\n"
    "  --library FILE   load a library before: an accelerator's, or more of TVM's functions\n";

struct Options {
  std::string package, labels, output;
  std::vector<std::string> inputs, libraries;
  size_t top = 5, repeats = 10;
};

[[noreturn]] void ExitWithUsage() {
  std::fputs(kUsage, stderr);
  std::exit(2);
}

size_t Count(std::string_view text) {
  size_t count = 0;
  const auto end = text.data() + text.size();
  if (const auto [at, error] = std::from_chars(text.data(), end, count);
      at != end || text.empty()) {
    std::fprintf(stderr, "'%s' is no number\n", text.data());
    ExitWithUsage();
  }
  return count;
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
      default: ExitWithUsage();
    }
  }
  if (optind == argc) {
    std::fputs("no package is named\n", stderr);
    ExitWithUsage();
  }
  options.package = argv[optind];
  options.inputs.assign(argv + optind + 1, argv + argc);
  return options;
}

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  if (path.empty()) return lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (lines.empty()) throw Refused("there are no labels", path, "give a file, a name a line");
  return lines;
}

// Compiled code has instructions that another processor of the same family may not have.
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
void Print(const tvm::ffi::Tensor& output, size_t count, const std::vector<std::string>& labels) {
  static const std::map<std::string, double (*)(const char*)> kNumbers = {
      {"float32", Number<float>},   {"float64", Number<double>},  {"bool", Number<uint8_t>},
      {"int8", Number<int8_t>},     {"int16", Number<int16_t>},   {"int32", Number<int32_t>},
      {"int64", Number<int64_t>},   {"uint8", Number<uint8_t>},   {"uint16", Number<uint16_t>},
      {"uint32", Number<uint32_t>}, {"uint64", Number<uint64_t>},
  };
  const std::string dtype = tvm::ffi::DLDataTypeToString(output.dtype());
  const auto number = kNumbers.find(dtype);
  if (number == kNumbers.end()) {
    throw Refused("the numbers of the first output cannot be listed, which is of " + dtype, "main",
                  "leave them out by --top 0");
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

double Median(Network& network, const std::vector<tvm::ffi::Tensor>& inputs, size_t repeats) {
  std::vector<double> times(repeats);
  for (double& time : times) {
    const auto start = std::chrono::steady_clock::now();
    network.Run(inputs);
    time =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  std::sort(times.begin(), times.end());
  return (times[(repeats - 1) / 2] + times[repeats / 2]) / 2;
}

void Deploy(const Options& options) {
  const std::vector<std::string> labels = Lines(options.labels);
  Network network(options.package, options.libraries);
  std::vector<tvm::ffi::Tensor> inputs;
  for (const std::string& path : options.inputs) inputs.push_back(ReadNpy(path));
  network.Check(inputs, options.inputs);
  const std::vector<tvm::ffi::Tensor> outputs = network.Run(inputs);
  if (!outputs.empty() && options.top > 0) Print(outputs[0], options.top, labels);
  for (size_t i = 0; !options.output.empty() && i < outputs.size(); ++i) {
    WriteNpy(options.output + "/" + std::to_string(i) + ".npy", outputs[i]);
  }
  if (options.repeats > 0) {
    std::printf("%.3f ms a call, the median of %zu\n", Median(network, inputs, options.repeats),
                options.repeats);
  }
  if (std::fflush(stdout) != 0) {
    throw Refused("the answer cannot be printed", "standard output",
                  "let it go to a file or a program that takes it");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::signal(SIGILL, OnIllegalInstruction);
  Deploy(Read(argc, argv));
  return 0;
} catch (const Refused& refused) {
  std::fprintf(stderr, "%s\n  where: %s\n  to do: %s\n", refused.what(), refused.where.c_str(),
               refused.fix.c_str());
  return 1;
} catch (const std::exception& error) {  // TVM's own, from inside of the network
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
