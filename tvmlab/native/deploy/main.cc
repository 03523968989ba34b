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
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "network.h"
#include "npy.h"
#include "package.h"
#include "refused.h"
#include "top.h"

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

size_t Number(const std::string& name, const std::string& text) {
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
      options.top = Number(name, value);
    else if (name == "--labels")
      options.labels = value;
    else if (name == "--output")
      options.output = value;
    else if (name == "--repeats")
      options.repeats = Number(name, value);
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

void Print(const tvm::ffi::Tensor& output, size_t count, const std::vector<std::string>& labels) {
  const auto found = Top(output, count);
  if (!found) {
    const std::string dtype = tvm::ffi::DLDataTypeToString(output.dtype());
    std::printf("the first output is of %s, whose numbers are not listed\n", dtype.c_str());
    return;
  }
  const bool several = !found->empty() && found->back().row > 0;
  for (const auto& [row, place, value] : *found) {
    if (several) std::printf("%4zu ", row);
    std::printf("%8zu  %12.6g  %s\n", place, value,
                place < labels.size() ? labels[place].c_str() : "");
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
