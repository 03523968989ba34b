// Runs a package of tvmlab without Python.
//
//   deploy PACKAGE [INPUT.npy ...] [--top N] [--labels FILE] [--output FOLDER] [--repeats N]
//          [--library FILE]
//
// The exit status is 0 where all went well, 1 where something was refused (standard error says
// what, where, and what to do), 2 for a command line that is not understood.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <numeric>
#include <string>
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

struct Usage {
  std::string wrong;
};

struct Options {
  std::string package, labels, output;
  std::vector<std::string> inputs, libraries;
  size_t top = 5, repeats = 10;
};

size_t Count(const std::string& name, const std::string& text) {
  if (text.empty() || text.size() > 6 || text.find_first_not_of("0123456789") != text.npos) {
    throw Usage{name + " takes a number from 0 to 999999, not '" + text + "'"};
  }
  return std::stoul(text);
}

Options Read(const std::vector<std::string>& words) {
  Options options;
  std::vector<std::string> files;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].compare(0, 2, "--") != 0) {
      files.push_back(words[i]);
      continue;
    }
    const std::string& name = words[i];
    if (i + 1 == words.size()) throw Usage{name + " is the last word"};
    const std::string& value = words[++i];
    if (name == "--top")
      options.top = Count(name, value);
    else if (name == "--labels")
      options.labels = value;
    else if (name == "--output")
      options.output = value;
    else if (name == "--repeats")
      options.repeats = Count(name, value);
    else if (name == "--library")
      options.libraries.push_back(value);
    else
      throw Usage{"there is no option " + name};
  }
  if (files.empty()) throw Usage{"no package is named"};
  options.package = files[0];
  options.inputs.assign(files.begin() + 1, files.end());
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
T As(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// IEEE 754's binary16: a sign, 5 bits of exponent, 10 of mantissa.
double Half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double size = std::ldexp(exponent ? 1024 + mantissa : mantissa, std::max(exponent, 1) - 25);
  if (exponent == 31) size = mantissa ? std::nan("") : HUGE_VAL;
  return bits >> 15 ? -size : size;
}

double Number(const char* bytes, DLDataType dtype) {
  switch (dtype.code << 8 | dtype.bits) {
    case kDLFloat << 8 | 16: return Half(As<uint16_t>(bytes));
    case kDLFloat << 8 | 32: return As<float>(bytes);
    case kDLFloat << 8 | 64: return As<double>(bytes);
    case kDLInt << 8 | 8: return As<int8_t>(bytes);
    case kDLInt << 8 | 16: return As<int16_t>(bytes);
    case kDLInt << 8 | 32: return As<int32_t>(bytes);
    case kDLInt << 8 | 64: return static_cast<double>(As<int64_t>(bytes));
    case kDLBool << 8 | 8:
    case kDLUInt << 8 | 8: return As<uint8_t>(bytes);
    case kDLUInt << 8 | 16: return As<uint16_t>(bytes);
    case kDLUInt << 8 | 32: return As<uint32_t>(bytes);
    case kDLUInt << 8 | 64: return static_cast<double>(As<uint64_t>(bytes));
    default:
      throw Refused("the numbers of the first output cannot be listed, which is of " +
                        std::string(tvm::ffi::DLDataTypeToString(dtype)),
                    "main", "leave them out by --top 0");
  }
}

// Prints the largest numbers of each row, NaNs last.
void Print(const tvm::ffi::Tensor& output, size_t count, const std::vector<std::string>& labels) {
  const auto shape = output.shape();
  const size_t classes = shape.empty() ? 1 : static_cast<size_t>(shape.back());
  const char* bytes = static_cast<const char*>(output.data_ptr()) + output.byte_offset();
  const auto all = static_cast<size_t>(output.numel());
  std::vector<double> row(classes);
  std::vector<size_t> order(classes);
  for (size_t start = 0; count > 0 && start < all; start += classes) {
    for (size_t i = 0; i < classes; ++i) {
      row[i] = Number(bytes + (start + i) * (output.dtype().bits / 8U), output.dtype());
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
  Network network(Open(options.package), options.libraries);
  std::vector<tvm::ffi::Tensor> inputs;
  for (const std::string& path : options.inputs) inputs.push_back(ReadNpy(path));
  network.Check(inputs, options.inputs);
  const std::vector<tvm::ffi::Tensor> outputs = network.Run(inputs);
  if (!outputs.empty()) Print(outputs[0], options.top, labels);
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
  if (argc == 2 && std::string(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  Deploy(Read({argv + 1, argv + argc}));
  return 0;
} catch (const Usage& usage) {
  std::fprintf(stderr, "%s\n%s", usage.wrong.c_str(), kUsage);
  return 2;
} catch (const Refused& refused) {
  std::fprintf(stderr, "%s\n  where: %s\n  to do: %s\n", refused.what(), refused.where.c_str(),
               refused.fix.c_str());
  return 1;
} catch (const std::exception& error) {  // TVM's own, from inside of the network
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
