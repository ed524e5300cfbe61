// Eight or sixteen floats at a time, in the vector extensions of GCC and Clang.
//
// Every sum here has one order, whatever the instruction set and the width of its vectors, and products and sums are
// fused only where the code says so. So all x86-64 instruction sets give the same bits.
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(LINGON_NEON)
#include <arm_neon.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "kernels.h"

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

// The widest vectors of the processor, for work on each element alone.
#ifdef LINGON_AVX512_VNNI
constexpr int kWide = 16;
#else
constexpr int kWide = 8;
#endif
typedef float WideFloats __attribute__((vector_size(4 * kWide)));
typedef int32_t WideInts __attribute__((vector_size(4 * kWide)));

constexpr int kParts = kPanel / kWide;  // vectors of a panel

template <typename Vector>
constexpr int kSize = sizeof(Vector) / sizeof(float);

template <typename Vector = Floats>
LINGON_INLINE Vector spread(float value) {
  return value - Vector{};
}

template <typename Vector = Floats>
LINGON_INLINE Vector load(const void* from) {
  Vector found;
  std::memcpy(&found, from, sizeof found);
  return found;
}

template <typename Vector>
LINGON_INLINE void store(float* to, Vector values) {
  std::memcpy(to, &values, sizeof values);
}

// The first `count` elements, fewer than the vector has; `rest` in the other lanes.
template <typename Vector = Floats>
LINGON_INLINE Vector load_part(const float* from, int64_t count, float rest) {
  Vector found = spread<Vector>(rest);
  std::memcpy(&found, from, count * sizeof(float));
  return found;
}

template <typename Vector = Floats>
LINGON_INLINE Vector load_up_to(const float* from, int64_t count) {
  return count == kSize<Vector> ? load<Vector>(from) : load_part<Vector>(from, count, 0);
}

template <typename Vector>
LINGON_INLINE void store_up_to(float* to, Vector values, int64_t count) {
  if (count == kSize<Vector>)
    store(to, values);
  else
    std::memcpy(to, &values, count * sizeof(float));
}

// Call use(values, place, count) for a vector of elements at a time. The last one may have fewer, filled up with
// `rest`.
template <typename Use>
LINGON_INLINE void each_vector(const float* values, int64_t size, float rest, Use use) {
  int64_t place = 0;
  for (; place + kWide <= size; place += kWide) use(load<WideFloats>(values + place), place, kWide);
  if (place < size) use(load_part<WideFloats>(values + place, size - place, rest), place, size - place);
}

// b if one of them is NaN.
#ifdef __AVX__  // The compiler makes two instructions of the conditions.
LINGON_INLINE Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
LINGON_INLINE Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
#else
LINGON_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
LINGON_INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
#endif

// The same of sixteen lanes, and the halves of them. With eight lanes a wide vector is one of those above.
#ifdef LINGON_AVX512_VNNI
constexpr __mmask16 kAll = 0xffff;  // without a mask GCC 12 warns of what its own header does not set
LINGON_INLINE WideFloats larger(WideFloats a, WideFloats b) { return _mm512_maskz_max_ps(kAll, a, b); }
LINGON_INLINE WideFloats smaller(WideFloats a, WideFloats b) { return _mm512_maskz_min_ps(kAll, a, b); }
LINGON_INLINE Floats low_half(WideFloats values) { return LINGON_SHUFFLE(values, values, 0, 1, 2, 3, 4, 5, 6, 7); }
LINGON_INLINE Floats high_half(WideFloats values) {
  return LINGON_SHUFFLE(values, values, 8, 9, 10, 11, 12, 13, 14, 15);
}
#endif

// a * b + c, rounded once.
#if defined(__AVX__)
LINGON_INLINE Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(LINGON_NEON)
LINGON_INLINE Floats fused(Floats a, Floats b, Floats c) {
  float32x4_t parts[3][2];
  std::memcpy(parts[0], &a, sizeof a), std::memcpy(parts[1], &b, sizeof b), std::memcpy(parts[2], &c, sizeof c);
  for (int half = 0; half < 2; ++half) parts[2][half] = vfmaq_f32(parts[2][half], parts[0][half], parts[1][half]);
  std::memcpy(&c, parts[2], sizeof c);
  return c;
}
#else
LINGON_INLINE Floats fused(Floats a, Floats b, Floats c) {
  for (int lane = 0; lane < kLanes; ++lane) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  return c;
}
#endif
#ifdef LINGON_AVX512_VNNI
LINGON_INLINE WideFloats fused(WideFloats a, WideFloats b, WideFloats c) { return _mm512_fmadd_ps(a, b, c); }
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

#ifdef LINGON_AVX512_VNNI
LINGON_INLINE float largest_lane(WideFloats values) {
  return largest_lane(larger(low_half(values), high_half(values)));
}
LINGON_INLINE float smallest_lane(WideFloats values) {
  return smallest_lane(smaller(low_half(values), high_half(values)));
}
#endif

constexpr int kSummed = 32;  // elements that a sum of many adds at a time, so that no addition waits for another one

// The sum of the terms of all elements; turn(values, place) replaces an array of vectors of elements by their terms, as
// many vectors at a time as `Turned` times those of kSummed elements, or fewer. Lane i of 32 adds the terms of the
// elements i, i + 32, i + 64 and so on. The lanes are added last, in halves: i and i + 16, then i and i + 8, then as
// `sum_lanes`. The term of `rest` is 0, or too small to count.
template <int Turned, typename Turn>
LINGON_INLINE float sum_of(const float* values, int64_t size, float rest, Turn turn) {
  constexpr int kParts = kSummed / kWide;
  WideFloats sums[kParts] = {};
  int64_t begin = 0;
  for (; begin + Turned * kSummed <= size; begin += Turned * kSummed) {
    WideFloats terms[Turned * kParts];
    for (int each = 0; each < Turned * kParts; ++each) terms[each] = load<WideFloats>(values + begin + each * kWide);
    turn(terms, begin);
    for (int each = 0; each < Turned * kParts; ++each) sums[each % kParts] += terms[each];
  }
  for (int part = 0; begin < size; begin += kWide, part = (part + 1) % kParts) {
    WideFloats term[1] = {size - begin < kWide ? load_part<WideFloats>(values + begin, size - begin, rest)
                                               : load<WideFloats>(values + begin)};
    turn(term, begin);
    sums[part] += term[0];
  }
#ifdef LINGON_AVX512_VNNI
  const WideFloats halves = sums[0] + sums[1];
  return sum_lanes(low_half(halves) + high_half(halves));
#else
  return sum_lanes((sums[0] + sums[2]) + (sums[1] + sums[3]));
#endif
}

constexpr float kRounding = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to the nearest even integer

// The nearest integers, the even one of two, of numbers far below 2^22; and value * 2^n for such integers n.
template <typename Vector>
LINGON_INLINE Vector nearest(Vector values) {
  return values + spread<Vector>(kRounding) - spread<Vector>(kRounding);
}
template <typename Vector>
LINGON_INLINE Vector scaled(Vector value, Vector n) {
  typedef int32_t Integers __attribute__((vector_size(sizeof(Vector))));
  return value * (Vector)((__builtin_convertvector(n, Integers) + 127) << 23);
}
#ifdef LINGON_AVX512_VNNI  // one instruction each
LINGON_INLINE WideFloats nearest(WideFloats values) { return _mm512_maskz_roundscale_ps(kAll, values, 0); }
LINGON_INLINE WideFloats scaled(WideFloats value, WideFloats n) { return _mm512_maskz_scalef_ps(kAll, value, n); }
LINGON_INLINE Floats nearest(Floats values) { return _mm256_round_ps(values, 0); }
LINGON_INLINE Floats scaled(Floats value, Floats n) { return _mm256_scalef_ps(value, n); }
#endif

// Replace some vectors of x <= 0 by exp(x), within 2 units in the last place; exp(-87) below -87, NaN for NaN.
// exp(x) = 2^n * exp(r) with |r| <= ln(2) / 2. Every operation goes over all vectors before the next one, because it
// would else wait for the one before.
template <typename Vector, int N>
LINGON_INLINE void exp_of_negatives(Vector (&x)[N]) {
  Vector n[N], r[N];
#define LINGON_EACH _Pragma("GCC unroll 8") for (int each = 0; each < N; ++each)
  LINGON_EACH x[each] = larger(spread<Vector>(-87.0f), x[each]);
  LINGON_EACH n[each] = nearest(x[each] * spread<Vector>(1.44269504f));
  LINGON_EACH r[each] = fused(n[each], spread<Vector>(-0.693359375f), x[each]);  // ln(2) in two parts
  LINGON_EACH r[each] = fused(n[each], spread<Vector>(2.12194440e-4f), r[each]);
  LINGON_EACH x[each] = spread<Vector>(1.0f / 720);
  for (float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    LINGON_EACH x[each] = fused(x[each], r[each], spread<Vector>(term));
  LINGON_EACH x[each] = scaled(x[each], n[each]);
#undef LINGON_EACH
}

template <typename Vector>
LINGON_INLINE Vector exp_of_negative(Vector x) {
  Vector found[1] = {x};
  exp_of_negatives(found);
  return found[0];
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
