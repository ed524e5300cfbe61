// Work on single rows of activations: norms, quantisation, scaling, recurrent cells.
#pragma once

#include "kernels.h"
#include "vectors.h"

namespace lingon {
namespace LINGON_ISA {
namespace {

// What a norm subtracts from each value, and by what it multiplies the rest.
struct Moments {
  float mean, inverse;
};

LINGON_INLINE Moments moments(const float* row, int64_t columns, const Norm& norm) {
  float mean = 0;
  if (norm.kind == NormKind::kLayer)
    mean = sum_of<1>(row, columns, 0, [](auto&, int64_t) {}) / columns;
  const float squares = sum_of<1>(row, columns, mean, [mean](auto& values, int64_t) {
    for (WideFloats& each : values) {
      const WideFloats difference = each - spread<WideFloats>(mean);
      each = difference * difference;
    }
  });
  return {mean, 1.0f / std::sqrt(squares / columns + norm.epsilon)};
}

LINGON_INLINE WideFloats normalised(WideFloats values, Moments found, const Norm& norm, int64_t place, int64_t count) {
  values = (values - spread<WideFloats>(found.mean)) * spread<WideFloats>(found.inverse) *
           load_up_to<WideFloats>(norm.gain + place, count);
  return norm.bias ? values + load_up_to<WideFloats>(norm.bias + place, count) : values;
}

void scale_and_add(float* row, int64_t columns, float scale, const float* added) {
  each_vector(row, columns, 0, [&](WideFloats values, int64_t place, int64_t count) {
    values *= spread<WideFloats>(scale);
    if (added) values += load_up_to<WideFloats>(added + place, count);
    store_up_to(row + place, values, count);
  });
}

// 1 / (1 + exp(-x)). The exponential is of a negative number, so that none overflows.
LINGON_INLINE WideFloats sigmoid(WideFloats x) {
  const WideFloats small = exp_of_negative(-larger(x, -x)), one = spread<WideFloats>(1.0f);
  return (x < spread<WideFloats>(0) ? small : one) / (one + small);
}

void advance_cell(const float* gates, const float* past, const float* residual, int64_t columns, float* present,
                  float* said) {
  each_vector(gates, columns, 0, [&](WideFloats gate, int64_t place, int64_t count) {
    const WideFloats keep = sigmoid(gate);
    const WideFloats added = (spread<WideFloats>(1.0f) - keep) * load_up_to<WideFloats>(gates + columns + place, count);
    const WideFloats cell = keep * load_up_to<WideFloats>(past + place, count) + added;
    store_up_to(present + place, cell, count);
    const WideFloats found = larger(spread<WideFloats>(0), cell);  // NaN stays
    store_up_to(said + place, residual ? found + load_up_to<WideFloats>(residual + place, count) : found, count);
  });
}

// The end of a product: `count` outputs from `place` on.
LINGON_INLINE void end_outputs(WideFloats found, const Ending& ending, int64_t place, int64_t count) {
  if (ending.relu) found = larger(spread<WideFloats>(0), found);  // NaN stays
  if (ending.residual) found += load_up_to<WideFloats>(ending.residual + place, count);
  store_up_to(ending.outputs + place, found, count);
}

// Store the levels nearest to values * inverse + zero as bytes; of two roundings they may be one above kMostLevel.
LINGON_INLINE void store_levels(uint8_t* to, WideFloats values, float inverse, int32_t zero, int64_t count) {
  values *= spread<WideFloats>(inverse);
#if defined(LINGON_AVX512_VNNI)
  const WideInts levels = (WideInts)_mm512_maskz_cvtps_epi32(kAll, values) + zero;
  const __m128i bytes = _mm512_maskz_cvtusepi32_epi8(kAll, (__m512i)levels);
#else
#ifdef __AVX__
  WideInts levels = (WideInts)_mm256_cvtps_epi32(values) + zero;
#else
  WideInts levels = __builtin_convertvector(nearest(values), WideInts) + zero;
#endif
  levels = levels < kMostLevel ? levels : WideInts{} + kMostLevel;
  typedef uint8_t Bytes __attribute__((vector_size(32)));
  const auto bytes = LINGON_SHUFFLE((Bytes)levels, (Bytes)levels, 0, 4, 8, 12, 16, 20, 24, 28);
#endif
  std::memcpy(to, &bytes, count == kWide ? sizeof bytes : (size_t)count);
}

// The range of values, which contains 0.
struct Range {
  float least, largest;
  bool finite;  // whether all values are
};

// The range of the values that change(values, place, count) makes of the vectors of a row. Beyond the end they are 0.
template <typename Change>
LINGON_INLINE Range range_of(const float* row, int64_t columns, Change change) {
  WideFloats low{}, high{}, broken{};
  each_vector(row, columns, 0, [&](WideFloats values, int64_t place, int64_t count) {
    const WideFloats each = change(values, place, count);
    low = smaller(each, low), high = larger(each, high);
    broken += each - each;  // NaN for NaN and infinity
  });
  const float least = smallest_lane(low), largest = largest_lane(high);
  bool finite = largest - least <= std::numeric_limits<float>::max();
  for (int lane = 0; lane < kWide; ++lane) finite = finite && broken[lane] == 0;
  return {least, largest, finite};
}

void normalise(const float* row, int64_t columns, const Norm& norm, float* normed) {
  const Moments found = moments(row, columns, norm);
  each_vector(row, columns, 0, [&](WideFloats read, int64_t place, int64_t count) {
    store_up_to(normed + place, normalised(read, found, norm, place, count), count);
  });
}

RowScale quantise(const float* row, int64_t columns, const Norm& norm, float* normed, uint8_t* values) {
  Range range;
  if (norm.kind == NormKind::kNone) {
    range = range_of(row, columns, [](WideFloats each, int64_t, int64_t) { return each; });
  } else {
    const Moments found = moments(row, columns, norm);
    // A copy is read: the floats that are written might else lie in the norm, for all that the compiler knows.
    range = range_of(row, columns, [normed, found, norm = norm](WideFloats read, int64_t place, int64_t count) {
      const WideFloats each = normalised(read, found, norm, place, count);
      store_up_to(normed + place, each, count);
      return each;
    });
    row = normed;
  }
  const float width = range.largest - range.least, scale = width > 1e-30f ? width / kMostLevel : 1, inverse = 1 / scale;
  const int32_t zero = range.finite ? (int32_t)(kRounding - (range.least * inverse + kRounding)) : 0;
  each_vector(row, columns, 0, [&](WideFloats read, int64_t place, int64_t count) {
    store_levels(values + place, read, inverse, zero, count);
  });
  std::memset(values + columns, 0, padded_inputs(columns) - columns);
  // All results of a row with NaN are NaN, so that the row alone fails.
  return {range.finite ? scale : std::numeric_limits<float>::quiet_NaN(), zero};
}

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
