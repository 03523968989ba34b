// Which bytes of a memory hold something, and who touched them in the phase that is going on.
#ifndef TVMLAB_NPU_MEMORY_H_
#define TVMLAB_NPU_MEMORY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "isa.h"
#include "refused.h"

namespace tvmlab::npu {

// Up to four nested strides over pieces of `run` bytes.
struct Box {
  struct Dimension {
    int64_t count, stride;
  };
  std::array<Dimension, 4> dimensions;  // the outermost first
  int64_t run;

  int64_t End(int64_t start) const {
    for (const auto& [count, stride] : dimensions) start += (count - 1) * stride;
    return start + run;
  }
};

// Calls use(start, bytes) for every contiguous piece; in another order than the machine's.
template <typename Use>
void ForEachRun(int64_t start, Box box, const Use& use) {
  auto& d = box.dimensions;
  for (auto& one : d) {
    if (one.stride == 0) one.count = 1;  // the same piece again marks nothing new
  }
  std::sort(d.begin(), d.end(), [](const auto& a, const auto& b) { return a.stride > b.stride; });
  for (size_t i = d.size(); i-- > 0;) {
    if (d[i].count > 1 && d[i].stride != box.run) continue;
    box.run *= d[i].count;
    d[i].count = 1;
  }
  std::sort(d.begin(), d.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  for (int64_t a = 0; a < d[0].count; ++a) {
    for (int64_t b = 0; b < d[1].count; ++b) {
      for (int64_t c = 0; c < d[2].count; ++c) {
        const int64_t at = start + a * d[0].stride + b * d[1].stride + c * d[2].stride;
        for (int64_t e = 0; e < d[3].count; ++e) use(at + e * d[3].stride, box.run);
      }
    }
  }
}

// A mark for each place of a memory. A place is a byte, or an accumulator.
class Marks {
 public:
  Marks(const char* name, int64_t places)
      : name_(name),
        places_(places),
        marks_(static_cast<uint8_t*>(std::calloc(static_cast<size_t>(places) + 1, 1)), std::free),
        dirty_(static_cast<size_t>(places / kPage + 1)) {
    if (marks_ == nullptr) throw std::bad_alloc();
  }

  void Read(int64_t at, int64_t count, Unit unit) {
    ExpectInside(at, count, "reads");
    const uint8_t mask = kHolds | Others(kWritten, unit), mine = Bit(kRead, unit);
    uint8_t* marks = marks_.get() + at;
    uint8_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      wrong |= (marks[i] & mask) ^ kHolds;
      marks[i] |= mine;
    }
    if (wrong != 0) Complain(at, count, mask, kHolds, "reads");
    Touch(at, count);
  }

  void Write(int64_t at, int64_t count, Unit unit) {
    ExpectInside(at, count, "writes");
    const uint8_t mask = Others(kWritten, unit) | Others(kRead, unit);
    const uint8_t mine = kHolds | Bit(kWritten, unit);
    uint8_t* marks = marks_.get() + at;
    uint8_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      wrong |= marks[i] & mask;
      marks[i] |= mine;
    }
    if (wrong != 0) Complain(at, count, mask, 0, "writes");
    Touch(at, count);
  }

  // Forgets who touched what.
  void EndPhase() {
    for (const int64_t page : pages_) {
      dirty_[static_cast<size_t>(page)] = 0;
      uint8_t* marks = marks_.get() + page * kPage;
      const int64_t count = std::min(kPage, places_ - page * kPage);
      for (int64_t i = 0; i < count; ++i) marks[i] &= kHolds;
    }
    pages_.clear();
  }

  // The first place that nothing was written to, or -1. (To read it is refused: it has no mark.)
  int64_t FirstEmpty() const {
    const void* found = std::memchr(marks_.get(), 0, static_cast<size_t>(places_));
    return found == nullptr ? -1 : static_cast<const uint8_t*>(found) - marks_.get();
  }

 private:
  static constexpr uint8_t kRead = 1, kWritten = 8, kHolds = 128;
  static constexpr int64_t kPage = 256;

  static uint8_t Bit(uint8_t first, Unit unit) {
    return static_cast<uint8_t>(first << static_cast<int>(unit));
  }
  static uint8_t Others(uint8_t first, Unit unit) {
    return static_cast<uint8_t>(7 * first & ~Bit(first, unit));
  }

  void ExpectInside(int64_t at, int64_t count, const char* does) const {
    Require(at >= 0 && count <= places_ - at, "it ", does, " ", name_, " from ", at, " to ",
            at + count, ", which ends at ", places_);
  }

  void Touch(int64_t at, int64_t count) {
    for (int64_t page = at / kPage; page <= (at + count - 1) / kPage; ++page) {
      if (dirty_[static_cast<size_t>(page)] != 0) continue;
      dirty_[static_cast<size_t>(page)] = 1;
      pages_.push_back(page);
    }
  }

  // The marks hold what was wrong besides the access's own.
  [[noreturn]] void Complain(int64_t at, int64_t count, uint8_t mask, uint8_t right,
                             const char* does) const {
    for (int64_t i = at; i < at + count; ++i) {
      const uint8_t mark = marks_.get()[i];
      if ((mark & mask) == right) continue;
      static constexpr const char* kUnits[] = {"the DMA engine", "the array", "the vector unit"};
      for (int unit = 0; unit < 3; ++unit) {
        const bool written = mark & mask & Bit(kWritten, static_cast<Unit>(unit));
        if (!written && !(mark & mask & Bit(kRead, static_cast<Unit>(unit)))) continue;
        Refuse("a race: it ", does, " ", name_, " at ", i, ", which ", kUnits[unit],
               written ? " writes" : " reads", " in the same phase");
      }
      Refuse("it reads ", name_, " at ", i, ", where nothing was written before");
    }
    Refuse("it ", does, " ", name_, " at ", at, " too early");
  }

  const char* name_;
  int64_t places_;
  std::unique_ptr<uint8_t, void (*)(void*)> marks_;
  std::vector<uint8_t> dirty_;
  std::vector<int64_t> pages_;  // those that are dirty
};

}  // namespace tvmlab::npu

#endif  // TVMLAB_NPU_MEMORY_H_
