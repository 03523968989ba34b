// Rescaling: sums to a view in SRAM, and the addition of two views.
#include "rescale.h"

#include <algorithm>

namespace tvmlab::npu {
namespace {

struct Limits {
  int32_t sum_low, sum_high, zero_point, low, high;
  bool wraps;  // to int32, before the clip
};

TVMLAB_NPU_INLINE int32_t Sum(uint32_t sum, const Limits& limits) {
  return std::min(std::max(static_cast<int32_t>(sum), limits.sum_low), limits.sum_high);
}

template <Rounding kRounding>
inline void Fixed(const uint32_t* sums, int64_t count, const int32_t* multipliers,
                  const int32_t* shifts, Limits limits, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t x = Multiply<kRounding>(Sum(sums[i], limits), multipliers[i], shifts[i]);
    int64_t shifted = WrappingAdd(x, limits.zero_point);
    if (limits.wraps) shifted = Wrap32(shifted);
    out[i] = static_cast<int32_t>(
        std::min<int64_t>(std::max<int64_t>(shifted, limits.low), limits.high));
  }
}

TVMLAB_NPU_CLONES
void OnnxSums(const uint32_t* sums, int64_t count, const float* multipliers, Limits limits,
              int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const float even = __builtin_rintf(static_cast<float>(Sum(sums[i], limits)) * multipliers[i]);
    out[i] = Clip(static_cast<double>(even) + limits.zero_point, limits.low, limits.high);
  }
}

TVMLAB_NPU_CLONES
void TfliteFloat64(const uint32_t* sums, int64_t count, const double* multipliers, Limits limits,
                   int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const double away = HalfAway(static_cast<double>(Sum(sums[i], limits)) * multipliers[i]);
    out[i] = Clip(away + limits.zero_point, limits.low, limits.high);
  }
}

// Expands a table to one value per channel.
template <typename T>
std::vector<T> Spread(std::vector<T> table, int64_t channels) {
  table.resize(static_cast<size_t>(channels), table.front());
  return table;
}

// Rescales one side to the common scale, in place: an int32 that wraps.
template <Rounding kRounding>
void Scale(int32_t* x, int64_t count, int32_t left, Add::Side side) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t shifted = WrappingShift(int64_t{x[i]} - side.zero, left);
    x[i] = Wrap32(Multiply<kRounding>(shifted, side.multiplier, side.shift));
  }
}

template <Rounding kRounding>
void Finish(const int32_t* lhs, const int32_t* rhs, int64_t count, const Add& add, int32_t* out) {
  const bool wraps = add.to.dtype == Dtype::kInt32;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t sum = Wrap32(int64_t{lhs[i]} + rhs[i]);
    int64_t x = Multiply<kRounding>(sum, add.out_multiplier, add.out_shift) + add.out_zero;
    if (wraps) x = Wrap32(x);
    out[i] = static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(x, add.low), add.high));
  }
}

// A multiply-add with one rounding to float32, computed in float64.
TVMLAB_NPU_INLINE float Fused(int32_t value, float factor, float plus) {
  const double x = static_cast<float>(value);
  return static_cast<float>(x * factor + plus);
}

struct Ratios {
  float lhs, rhs, common;
  double low, high;
};

TVMLAB_NPU_CLONES
void OnnxAdd(const int32_t* lhs, const int32_t* rhs, int64_t count, Ratios ratios, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const float right = Fused(rhs[i], ratios.rhs, ratios.common);
    const float sum = Fused(lhs[i], ratios.lhs, right);
    out[i] = Clip(__builtin_rintf(sum), ratios.low, ratios.high);
  }
}

}  // namespace

void Machine::Execute(const Requantize& r) {
  const Limits limits{r.sum_low, r.sum_high, r.zero_point,
                      r.low,     r.high,     r.to.dtype == Dtype::kInt32};
  std::vector<int32_t> row(static_cast<size_t>(r.channels));
  const auto each = [&](const auto& use) {
    const uint32_t* sums = Sums(r.sums);
    for (int64_t y = 0; y < r.rows; ++y) {
      for (int64_t x = 0; x < r.cols; ++x, sums += r.channels) {
        use(sums);
        Narrow(row.data(), r.to.dtype, r.channels, Pixel(r.to, y, x));
      }
    }
  };
  const auto real = [&](const auto& requantize, auto table) {
    const auto multipliers = Spread(std::move(table), r.channels);
    each([&](const uint32_t* sums) {
      requantize(sums, r.channels, multipliers.data(), limits, row.data());
    });
  };
  if (r.rounding == Rounding::kOnnx) return real(OnnxSums, Table<float>(r.multipliers, r.tables()));
  if (r.rounding == Rounding::kTfliteFloat64) {
    return real(TfliteFloat64, Table<double>(r.multipliers, r.tables()));
  }
  std::vector<int32_t> multipliers(1), shifts(1);
  if (r.rounding != Rounding::kNone) {
    multipliers = Table<int32_t>(r.multipliers, r.tables());
    shifts = Table<int32_t>(r.shifts, r.tables());
    const auto [low, high] = std::minmax_element(shifts.begin(), shifts.end());
    Require(-31 <= *low && *high <= 30, "a shift in its table is ", *high > 30 ? *high : *low);
  }
  multipliers = Spread(std::move(multipliers), r.channels);
  shifts = Spread(std::move(shifts), r.channels);
  WithFixedPoint(r.rounding, [&](auto way) {
    each([&](const uint32_t* sums) {
      Fixed<way()>(sums, r.channels, multipliers.data(), shifts.data(), limits, row.data());
    });
  });
}

void Machine::Execute(const Add& add) {
  const bool onnx = add.out_rounding == Rounding::kOnnx;
  // Without a right side the ratio is 0, so that only the constant part of the sums is left.
  const Ratios ratios{FloatOf(add.lhs.multiplier), add.both() ? FloatOf(add.rhs.multiplier) : 0,
                      FloatOf(add.out_multiplier), static_cast<double>(add.low),
                      static_cast<double>(add.high)};
  std::vector<int32_t> rows(static_cast<size_t>(2 * add.channels));
  int32_t *lhs = rows.data(), *rhs = lhs + add.channels;
  const auto read = [&](const Add::Side& side, int64_t y, int64_t x, int32_t* to) {
    Widen(Pixel(side.view, y, x), side.view.dtype, add.channels, to);
    if (onnx) return;
    WithFixedPoint(side.rounding,
                   [&](auto way) { Scale<way()>(to, add.channels, add.left_shift, side); });
  };
  for (int64_t y = 0; y < add.rows; ++y) {
    for (int64_t x = 0; x < add.cols; ++x) {
      read(add.lhs, y, x, lhs);
      if (add.both()) read(add.rhs, y, x, rhs);
      if (onnx) {
        OnnxAdd(lhs, rhs, add.channels, ratios, lhs);
      } else {
        WithFixedPoint(add.out_rounding,
                       [&](auto way) { Finish<way()>(lhs, rhs, add.channels, add, lhs); });
      }
      Narrow(lhs, add.to.dtype, add.channels, Pixel(add.to, y, x));
    }
  }
}

}  // namespace tvmlab::npu
