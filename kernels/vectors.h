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
#include <type_traits>

namespace lingon {
namespace LINGON_ISA {
namespace {  // nothing here may be linked into code for other processors

constexpr int kLanes = 8;
typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));

#define LINGON_INLINE inline __attribute__((always_inline))

// The elements of a and b at these places, those of b after those of a.
#if defined(__clang__) || __GNUC__ >= 12
#define LINGON_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
template <typename Vector, typename... Places>
LINGON_INLINE auto shuffled(Vector a, Vector b, Places... places) {
  typedef std::remove_reference_t<decltype(a[0])> Element;
  constexpr int kSize = sizeof(Vector) / sizeof(Element);
  typedef Element Shuffled __attribute__((vector_size(sizeof...(places) * sizeof(Element))));
  return Shuffled{(places < kSize ? a[places] : b[places - kSize])...};
}
#define LINGON_SHUFFLE(a, b, ...) shuffled(a, b, __VA_ARGS__)
#endif

LINGON_INLINE Floats spread(float value) { return Floats{value, value, value, value, value, value, value, value}; }

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

LINGON_INLINE void store_part(float* to, Floats values, int64_t count) {
  std::memcpy(to, &values, count * sizeof(float));
}

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

// The sums of the lanes of eight vectors, with the same bits as `sum_lanes` of each.
LINGON_INLINE Floats sums_of_lanes(const Floats (&each)[8]) {
  Floats halves[4], quarters[2];
  for (int pair = 0; pair < 4; ++pair) {
    const Floats a = each[2 * pair], b = each[2 * pair + 1];
    halves[pair] = LINGON_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + LINGON_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int pair = 0; pair < 2; ++pair) {
    const Floats a = halves[2 * pair], b = halves[2 * pair + 1];
    quarters[pair] = LINGON_SHUFFLE(a, b, 0, 1, 4, 5, 8, 9, 12, 13) + LINGON_SHUFFLE(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
  }
  return LINGON_SHUFFLE(quarters[0], quarters[1], 0, 2, 4, 6, 8, 10, 12, 14) +
         LINGON_SHUFFLE(quarters[0], quarters[1], 1, 3, 5, 7, 9, 11, 13, 15);
}

LINGON_INLINE float largest_lane(Floats values) {
  values = larger(values, LINGON_SHUFFLE(values, values, 4, 5, 6, 7, 0, 1, 2, 3));
  values = larger(values, LINGON_SHUFFLE(values, values, 2, 3, 0, 1, 6, 7, 4, 5));
  return values[0] > values[1] ? values[0] : values[1];
}

LINGON_INLINE float smallest_lane(Floats values) {
  values = smaller(values, LINGON_SHUFFLE(values, values, 4, 5, 6, 7, 0, 1, 2, 3));
  values = smaller(values, LINGON_SHUFFLE(values, values, 2, 3, 0, 1, 6, 7, 4, 5));
  return values[0] < values[1] ? values[0] : values[1];
}

constexpr float kRounding = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to the nearest even integer

// exp for x <= 0, within 2 units in the last place; exp(-87) below -87, NaN for NaN.
// exp(x) = 2^n * exp(r) with |r| <= ln(2) / 2.
LINGON_INLINE Floats exp_of_negative(Floats x) {
  x = larger(spread(-87.0f), x);
  const Floats rounded = x * spread(1.44269504f) + spread(kRounding);
  const Floats n = rounded - spread(kRounding);
  const Floats r = (x - n * spread(0.693359375f)) - n * spread(-2.12194440e-4f);  // ln(2) in two parts
  Floats sum = spread(1.0f / 720);
  for (float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) sum = sum * r + spread(term);
  const Ints exponent = ((Ints)rounded - (Ints)spread(kRounding) + 127) << 23;
  return sum * (Floats)exponent;
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

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
