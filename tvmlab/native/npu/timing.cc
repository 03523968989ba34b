// What a program costs: cycles by the formulas of tvmlab/npu's machine, bytes and products.
//
// Bytes of the SRAM are those that are useful: the array reads a tap's input once for each block of
// `columns` output channels and its weights once; the vector unit reads its input once a tap.
#include <algorithm>
#include <array>

#include "refused.h"
#include "shapes.h"
#include "verify.h"

namespace tvmlab::npu {
namespace {

// Bytes on the bus: contiguous runs, each in whole bursts.
template <typename T>
int64_t BusBytes(const T& t, const Config& config) {
  const Box box = InDram(t);
  int64_t run = box.run, runs = 1;
  for (size_t i = box.dimensions.size(); i-- > 0;) {
    const auto [count, stride] = box.dimensions[i];
    if (count == 1) continue;
    if (runs == 1 && stride == run) {
      run *= count;
    } else {
      runs *= count;
    }
  }
  return runs * CeilDiv(run, config.dma_burst_bytes) * config.dma_burst_bytes;
}

template <typename Window>
int64_t Macs(const Window& w, int64_t channels) {
  return int64_t{w.out_rows} * w.out_cols * w.kernel_h * w.kernel_w * channels;
}

// Adds to the counters what an instruction costs, and gives its cycles.
class Counter {
 public:
  explicit Counter(const Config& config) : config_(config) {}

  template <typename T>
  std::enable_if_t<kIsTransfer<T>, int64_t> operator()(const T& t, Counters& to) const {
    const int64_t bus = BusBytes(t, config_);
    (T::kOpcode == Load::kOpcode ? to.loaded_bytes : to.stored_bytes) += MovedBytes(t);
    (T::kOpcode == Load::kOpcode ? to.sram_written_bytes : to.sram_read_bytes) += MovedBytes(t);
    to.bus_bytes += bus;
    return config_.dma_latency + CeilDiv(bus, config_.dma_bytes_per_cycle);
  }

  int64_t operator()(const Matmul& m, Counters& to) const {
    const int64_t taps = int64_t{m.kernel_h} * m.kernel_w;
    const int64_t pixels = int64_t{m.out_rows} * m.out_cols;
    const int64_t across = CeilDiv(m.out_channels, config_.columns);
    const int64_t blocks = taps * CeilDiv(m.channels, config_.rows) * across;
    to.array_macs += Macs(m, m.channels) * m.out_channels;
    to.sram_read_bytes += across * taps * m.channels * pixels + WeightBytes(m, config_);
    if (m.bias >= 0) to.sram_read_bytes += 4 * int64_t{m.out_channels};
    return config_.rows + config_.columns + blocks * std::max<int64_t>(pixels, config_.rows);
  }

  int64_t operator()(const Depthwise& d, Counters& to) const {
    to.vector_macs += Macs(d, d.channels);
    to.sram_read_bytes += Macs(d, d.channels) + WeightBytes(d, config_);
    if (d.bias >= 0) to.sram_read_bytes += 4 * int64_t{d.out_channels};
    return Vector(Macs(d, 1), d.channels);
  }

  int64_t operator()(const Requantize& r, Counters& to) const {
    const int64_t tables = r.per_channel ? r.channels : 1;
    static constexpr int64_t kTableBytes[] = {0, 8, 8, 8, 4, 8};  // by the rounding
    to.sram_read_bytes += tables * kTableBytes[r.rounding];
    to.sram_written_bytes += Output(r).bytes();
    return Vector(int64_t{r.rows} * r.cols, r.channels);
  }

  int64_t operator()(const Add& a, Counters& to) const {
    const bool both = a.rhs_address >= 0;
    to.sram_read_bytes += Left(a).bytes() + (both ? Right(a).bytes() : 0);
    to.sram_written_bytes += Output(a).bytes();
    return Vector((both ? 2 : 1) * int64_t{a.rows} * a.cols, a.channels);
  }

  int64_t operator()(const Pool& p, Counters& to) const {
    to.sram_read_bytes += Macs(p, p.channels) * Bytes(static_cast<Dtype>(p.dtype));
    to.sram_written_bytes += Output(p).bytes();
    return Vector(Macs(p, 1), p.channels);
  }

  int64_t operator()(const Sum& s, Counters& to) const {
    to.sram_read_bytes += Input(s).bytes();
    return Vector(int64_t{s.rows} * s.cols, s.channels);
  }

  int64_t operator()(const Sync&, Counters&) const { return 0; }

 private:
  int64_t Vector(int64_t passes, int64_t channels) const {
    return config_.vector_latency + passes * CeilDiv(channels, config_.lanes);
  }

  const Config& config_;
};

// The units between two syncs.
class Phase {
 public:
  void Add(Unit unit, int64_t cycles, int64_t layer) {
    auto& [total, parts] = units_[static_cast<size_t>(unit)];
    total += cycles;
    parts.emplace_back(layer, cycles);
  }

  // Gives the phase's time to the layers that its longest unit worked for, and that of the sync, if
  // there is one, to the last of them.
  void End(std::vector<Counters>& layers, int64_t sync, int64_t sync_layer) {
    const auto shorter = [](const auto& a, const auto& b) { return a.total < b.total; };
    const auto longest = std::max_element(units_.begin(), units_.end(), shorter);  // the first one
    for (const auto& [layer, cycles] : longest->parts) {
      layers[static_cast<size_t>(layer)].cycles += cycles;
    }
    const int64_t last = longest->parts.empty() ? sync_layer : longest->parts.back().first;
    if (sync > 0) layers[static_cast<size_t>(last)].cycles += sync;
    for (auto& unit : units_) {
      unit.total = 0;
      unit.parts.clear();
    }
  }

 private:
  struct Total {
    int64_t total = 0;
    std::vector<std::pair<int64_t, int64_t>> parts;  // layers and cycles
  };
  std::array<Total, 3> units_;
};

}  // namespace

std::vector<int64_t> Cycles(const Program& program) {
  const Counter counter(program.config);
  Counters unused;
  std::vector<int64_t> cycles;
  for (const Instruction& any : program.instructions) {
    cycles.push_back(std::visit([&](const auto& one) { return counter(one, unused); }, any));
  }
  return cycles;
}

std::vector<Counters> Count(const Program& program) {
  std::vector<Counters> layers(static_cast<size_t>(program.layers));
  const Counter counter(program.config);
  Phase phase;
  for (const Instruction& any : program.instructions) {
    std::visit(
        [&](const auto& instruction) {
          Counters& layer = layers[static_cast<size_t>(instruction.layer)];
          const int64_t cycles = counter(instruction, layer);
          ++layer.instructions;
          switch (instruction.kUnit) {
            case Unit::kDma: layer.dma_cycles += cycles; break;
            case Unit::kArray: layer.array_cycles += cycles; break;
            case Unit::kVector: layer.vector_cycles += cycles; break;
            case Unit::kAll: return phase.End(layers, 1, instruction.layer);
          }
          phase.Add(instruction.kUnit, cycles, instruction.layer);
        },
        any);
  }
  phase.End(layers, 0, -1);
  return layers;
}

}  // namespace tvmlab::npu
