// Eight floats at a time, in the vector extensions of GCC and Clang.
//
// Every sum here has one order, whatever the instruction set: lane i adds the elements i, i + 8, i + 16, ..., and the
// lanes are added last. The build turns fused multiply-add off. So all x86-64 instruction sets give the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>

namespace lingon {
namespace LINGON_ISA {

constexpr int kLanes = 8;
typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));

#define LINGON_INLINE inline __attribute__((always_inline))

LINGON_INLINE Floats spread(float value) {
  return Floats{value, value, value, value, value, value, value, value};
}

LINGON_INLINE Floats load(const float* from) {
  Floats found;
  std::memcpy(&found, from, sizeof found);
  return found;
}

LINGON_INLINE void store(float* to, Floats values) { std::memcpy(to, &values, sizeof values); }

// The first `count` elements, fewer than kLanes; `rest` in the other lanes.
LINGON_INLINE Floats load_part(const float* from, int64_t count, float rest) {
  Floats found = spread(rest);
  std::memcpy(&found, from, count * sizeof(float));
  return found;
}

LINGON_INLINE void store_part(float* to, Floats values, int64_t count) { std::memcpy(to, &values, count * sizeof(float)); }

// b if one of them is NaN.
#ifdef __AVX__  // The compiler makes two instructions of the conditions.
LINGON_INLINE Floats larger(Floats a, Floats b) { return __builtin_ia32_maxps256(a, b); }
LINGON_INLINE Floats smaller(Floats a, Floats b) { return __builtin_ia32_minps256(a, b); }
#else
LINGON_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
LINGON_INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
#endif

LINGON_INLINE float sum_lanes(Floats values) {
  return ((values[0] + values[4]) + (values[2] + values[6])) + ((values[1] + values[5]) + (values[3] + values[7]));
}

LINGON_INLINE float largest_lane(Floats values) {
  float found = values[0];
  for (int lane = 1; lane < kLanes; ++lane) found = values[lane] > found ? values[lane] : found;
  return found;
}

LINGON_INLINE float smallest_lane(Floats values) {
  float found = values[0];
  for (int lane = 1; lane < kLanes; ++lane) found = values[lane] < found ? values[lane] : found;
  return found;
}

constexpr float kRounding = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to the nearest even integer

// exp for x <= 0, within 2 units in the last place; 0 below -87, NaN for NaN. exp(x) = 2^n * exp(r), |r| <= ln(2) / 2.
LINGON_INLINE Floats exp_of_negative(Floats x) {
  const Ints vanishes = x < spread(-87.0f);
  x = vanishes ? spread(-87.0f) : x;
  const Floats rounded = x * spread(1.44269504f) + spread(kRounding);
  const Floats n = rounded - spread(kRounding);
  const Floats r = (x - n * spread(0.693359375f)) - n * spread(-2.12194440e-4f);  // ln(2) in two parts
  Floats sum = spread(1.0f / 5040);
  for (float term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) sum = sum * r + spread(term);
  const Ints exponent = ((Ints)rounded - (Ints)spread(kRounding) + 127) << 23;
  return vanishes ? spread(0.0f) : sum * (Floats)exponent;
}

// log for normal x > 0. With x = m * 2^e and m in [sqrt(1/2), sqrt(2)): e * ln(2) + 2 * artanh((m - 1) / (m + 1)).
inline double log_of(double x) {
  int exponent;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < 0.70710678118654752) mantissa *= 2, --exponent;
  const double t = (mantissa - 1) / (mantissa + 1), square = t * t;
  double sum = 0;
  for (int power = 21; power >= 1; power -= 2) sum = sum * square + 1.0 / power;
  return exponent * 0.69314718055994531 + 2 * t * sum;
}

}  // namespace LINGON_ISA
}  // namespace lingon
