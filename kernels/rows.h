// Work on single rows of activations: norms, quantisation, scaling.
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
    mean = sum_of(row, columns, 0, [](WideFloats values, int64_t) { return values; }) / columns;
  const float squares = sum_of(row, columns, mean, [mean](WideFloats values, int64_t) {
    const WideFloats difference = values - spread<WideFloats>(mean);
    return difference * difference;
  });
  return {mean, 1.0f / std::sqrt(squares / columns + norm.epsilon)};
}

// Copies of norms and moments are passed: bytes that are written might else lie in them, for all that the compiler
// knows.
template <bool Normed>
LINGON_INLINE WideFloats normalised(WideFloats values, Moments found, Norm norm, int64_t place, int64_t count) {
  if (!Normed) return values;
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

// Store values 0..kMostLevel as bytes: the lowest byte of each integer.
LINGON_INLINE void store_bytes(uint8_t* to, WideFloats values, int64_t count) {
  const WideInts integers = __builtin_convertvector(values, WideInts);
#ifdef LINGON_AVX512_VNNI
  const __m128i bytes = _mm512_maskz_cvtepi32_epi8(kAll, (__m512i)integers);
#else
  typedef uint8_t Bytes __attribute__((vector_size(32)));
  const auto bytes = LINGON_SHUFFLE((Bytes)integers, (Bytes)integers, 0, 4, 8, 12, 16, 20, 24, 28);
#endif
  std::memcpy(to, &bytes, count == kWide ? sizeof bytes : (size_t)count);
}

// Lanes beyond the end of a row are 0: their gain and bias are, or without a norm they themselves.
template <bool Normed>
LINGON_INLINE RowScale quantise_as(const float* row, int64_t columns, const Norm norm, uint8_t* values) {
  const Moments found = Normed ? moments(row, columns, norm) : Moments{0, 1};
  WideFloats low{}, high{}, broken{};  // the range contains 0
  each_vector(row, columns, 0, [&](WideFloats read, int64_t place, int64_t count) {
    const WideFloats each = normalised<Normed>(read, found, norm, place, count);
    low = smaller(each, low), high = larger(each, high);
    broken += each - each;  // NaN for NaN and infinity
  });
  const float least = smallest_lane(low), range = largest_lane(high) - least;
  const float scale = range > 1e-30f ? range / kMostLevel : 1, inverse = 1 / scale;
  const float zero = kRounding - (least * inverse + kRounding);
  each_vector(row, columns, 0, [&](WideFloats read, int64_t place, int64_t count) {
    const WideFloats rounding = spread<WideFloats>(kRounding);
    const WideFloats each = normalised<Normed>(read, found, norm, place, count);
    const WideFloats level = each * spread<WideFloats>(inverse) + rounding - rounding + spread<WideFloats>(zero);
    store_bytes(values + place, smaller(level, spread<WideFloats>(kMostLevel)), count);  // of two roundings up to 256
  });
  std::memset(values + columns, 0, padded_inputs(columns) - columns);
  bool finite = range <= std::numeric_limits<float>::max();
  for (int lane = 0; lane < kWide; ++lane) finite = finite && broken[lane] == 0;
  // All results of a row with NaN are NaN, so that the row alone fails.
  return {finite ? scale : std::numeric_limits<float>::quiet_NaN(), finite ? (int32_t)zero : 0};
}

RowScale quantise(const float* row, int64_t columns, const Norm& norm, uint8_t* values) {
  if (norm.kind == NormKind::kNone) return quantise_as<false>(row, columns, norm, values);
  return quantise_as<true>(row, columns, norm, values);
}

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
