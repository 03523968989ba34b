// The cost of a program: cycles by the formulas of tvmlab/npu's machine, bytes and products.
//
// The array reads a tap's input once for each block of `columns` output channels and its weights
// once; the vector unit reads its input once per tap.
#include <algorithm>
#include <array>
#include <utility>

#include "program.h"

namespace tvmlab::npu {
namespace {

template <typename Window>
int64_t Macs(const Window& w, int64_t channels) {
  return int64_t{w.out_rows} * w.out_cols * w.kernel_h * w.kernel_w * channels;
}

struct Cost {
  Unit unit;
  int64_t cycles;
};

// Adds an instruction's transfers and operations to the counters; returns its cycles.
class Counter {
 public:
  explicit Counter(const Config& config) : config_(config) {}

  Cost operator()(const Load& load, Counters& to) const {
    return Move(load, to, to.loaded_bytes, to.sram_written_bytes);
  }
  Cost operator()(const Store& store, Counters& to) const {
    return Move(store, to, to.stored_bytes, to.sram_read_bytes);
  }

  Cost operator()(const Matmul& m, Counters& to) const {
    const int64_t taps = int64_t{m.kernel_h} * m.kernel_w;
    const int64_t pixels = int64_t{m.out_rows} * m.out_cols;
    const int64_t across = CeilDiv(m.out_channels, config_.columns);
    const int64_t blocks = taps * CeilDiv(m.in.channels, config_.rows) * across;
    to.array_macs += Macs(m, m.in.channels) * m.out_channels;
    to.sram_read_bytes += across * taps * m.in.channels * pixels + WeightBytes(m, config_);
    if (m.bias >= 0) to.sram_read_bytes += 4 * int64_t{m.out_channels};
    return {Unit::kArray,
            config_.rows + config_.columns + blocks * std::max<int64_t>(pixels, config_.rows)};
  }

  Cost operator()(const Depthwise& d, Counters& to) const {
    to.vector_macs += Macs(d, d.in.channels);
    to.sram_read_bytes += Macs(d, d.in.channels) + WeightBytes(d, config_);
    if (d.bias >= 0) to.sram_read_bytes += 4 * int64_t{d.out_channels};
    return Vector(Macs(d, 1), d.in.channels);
  }

  Cost operator()(const Requantize& r, Counters& to) const {
    static constexpr int64_t kTableBytes[] = {0, 8, 8, 8, 4, 8};  // by the rounding
    to.sram_read_bytes += r.tables() * kTableBytes[static_cast<size_t>(r.rounding)];
    to.sram_written_bytes += r.out().bytes();
    return Vector(int64_t{r.rows} * r.cols, r.channels);
  }

  Cost operator()(const Add& a, Counters& to) const {
    to.sram_read_bytes += a.image(a.lhs.view).bytes();
    if (a.both()) to.sram_read_bytes += a.image(a.rhs.view).bytes();
    to.sram_written_bytes += a.image(a.to).bytes();
    return Vector((a.both() ? 2 : 1) * int64_t{a.rows} * a.cols, a.channels);
  }

  Cost operator()(const Pool& p, Counters& to) const {
    to.sram_read_bytes += Macs(p, p.in.channels) * Bytes(p.in.dtype);
    to.sram_written_bytes += p.out().bytes();
    return Vector(Macs(p, 1), p.in.channels);
  }

  Cost operator()(const Sum& s, Counters& to) const {
    to.sram_read_bytes += s.in.bytes();
    return Vector(int64_t{s.in.rows} * s.in.cols, s.in.channels);
  }

  Cost operator()(const Sync&, Counters&) const { return {Unit::kAll, 0}; }

 private:
  // Each contiguous run occupies whole bursts on the bus.
  Cost Move(const Transfer& t, Counters& to, int64_t& dram_bytes, int64_t& sram_bytes) const {
    dram_bytes += t.bytes();
    sram_bytes += t.bytes();
    const Box box = t.dram().Joined();
    const int64_t bus =
        box.Runs() * CeilDiv(box.run, config_.dma_burst_bytes) * config_.dma_burst_bytes;
    to.bus_bytes += bus;
    return {Unit::kDma, config_.dma_latency + CeilDiv(bus, config_.dma_bytes_per_cycle)};
  }

  Cost Vector(int64_t passes, int64_t channels) const {
    return {Unit::kVector, config_.vector_latency + passes * CeilDiv(channels, config_.lanes)};
  }

  const Config& config_;
};

// The work of a unit between two syncs: layers and cycles.
using Work = std::vector<std::pair<Counters*, int64_t>>;

// Charges a phase's time to the layers of its longest-running unit, the first such unit if there
// are several. Returns the last of these layers, or null.
Counters* EndPhase(std::array<Work, 3>& units) {
  const auto total = [](const Work& work) {
    int64_t sum = 0;
    for (const auto& [layer, cycles] : work) sum += cycles;
    return sum;
  };
  const auto shorter = [&](const Work& a, const Work& b) { return total(a) < total(b); };
  Counters* last = nullptr;
  for (const auto& [layer, cycles] : *std::max_element(units.begin(), units.end(), shorter)) {
    layer->cycles += cycles;
    last = layer;
  }
  units = {};
  return last;
}

}  // namespace

std::vector<int64_t> Cycles(const Program& program) {
  const Counter counter(program.config);
  Counters unused{};
  std::vector<int64_t> cycles;
  ForEach(program, [&](const auto& one) { cycles.push_back(counter(one, unused).cycles); });
  return cycles;
}

std::vector<Counters> Count(const Program& program) {
  std::vector<Counters> layers(program.layers);
  const Counter counter(program.config);
  std::array<Work, 3> units;
  ForEach(program, [&](const auto& instruction) {
    Counters& layer = layers[static_cast<size_t>(instruction.layer)];
    const auto [unit, cycles] = counter(instruction, layer);
    ++layer.instructions;
    if (unit == Unit::kAll) {  // a sync takes a cycle, for the phase's last layer
      Counters* last = EndPhase(units);
      ++(last != nullptr ? last : &layer)->cycles;
    } else {
      static constexpr int64_t Counters::*kCycles[] = {
          &Counters::dma_cycles, &Counters::array_cycles, &Counters::vector_cycles};
      layer.*kCycles[static_cast<size_t>(unit)] += cycles;
      units[static_cast<size_t>(unit)].emplace_back(&layer, cycles);
    }
  });
  EndPhase(units);
  return layers;
}

}  // namespace tvmlab::npu
