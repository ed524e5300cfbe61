// Conversions between float16 and float32. Every instruction set gives the same bits, but for those of NaN.
#pragma once

#include "kernels.h"
#include "vectors.h"

#ifdef LINGON_NEON
#include <arm_neon.h>
#endif

namespace lingon {
namespace LINGON_ISA {
namespace {

// Shifted to the position of a float32, a half is too small by 2^112. That factor also makes denormals of both types
// right.
LINGON_INLINE float widened(Half half) {
  const uint32_t magnitude = (uint32_t)(half.bits & 0x7fff) << 13;
  uint32_t bits;
  float value;
  std::memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112f;
  std::memcpy(&bits, &value, sizeof bits);
  if ((half.bits & 0x7c00) == 0x7c00) bits |= 0x7f800000;  // infinity and NaN
  bits |= (uint32_t)(half.bits & 0x8000) << 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The nearest half, the even one of two; infinity beyond the range.
LINGON_INLINE Half narrowed(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  uint32_t found;
  if (magnitude > 0x7f800000) {
    found = 0x7e00;  // NaN
  } else if (magnitude >= 0x477ff000) {
    found = 0x7c00;
  } else if (magnitude < 0x38800000) {  // a denormal half: the step of floats from 0.5 on is that of these, 2^-24
    const float shifted = std::fabs(value) + 0.5f;
    std::memcpy(&found, &shifted, sizeof found);
    found -= 0x3f000000;
  } else {
    found = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  }
  return {(uint16_t)(sign | found)};
}

#if defined(__F16C__)
LINGON_INLINE void load_halves(const Half* from, Floats& to) {
  to = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
}
LINGON_INLINE void store_halves(Half* to, Floats values) {
  _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}
#ifdef LINGON_AVX512_VNNI
LINGON_INLINE void load_halves(const Half* from, WideFloats& to) {
  to = _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256((const __m256i*)from));
}
#endif
#elif defined(LINGON_NEON)
LINGON_INLINE void load_halves(const Half* from, Floats& to) {
  const uint16x8_t bits = vld1q_u16(&from->bits);
  const float32x4_t parts[2] = {vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits))),
                                vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(bits)))};
  std::memcpy(&to, parts, sizeof to);
}
LINGON_INLINE void store_halves(Half* to, Floats values) {
  float32x4_t parts[2];
  std::memcpy(parts, &values, sizeof parts);
  vst1_u16(&to->bits, vreinterpret_u16_f16(vcvt_f16_f32(parts[0])));
  vst1_u16(&to->bits + 4, vreinterpret_u16_f16(vcvt_f16_f32(parts[1])));
}
#else
LINGON_INLINE void load_halves(const Half* from, Floats& to) {
  for (int lane = 0; lane < kLanes; ++lane) to[lane] = widened(from[lane]);
}
LINGON_INLINE void store_halves(Half* to, Floats values) {
  for (int lane = 0; lane < kLanes; ++lane) to[lane] = narrowed(values[lane]);
}
#endif

template <typename Vector = Floats>
LINGON_INLINE Vector load(const Half* from) {
  Vector found;
  load_halves(from, found);
  return found;
}

template <typename Vector = Floats>
LINGON_INLINE Vector load_up_to(const Half* from, int64_t count) {
  if (count == kSize<Vector>) return load<Vector>(from);
  Half part[kSize<Vector>] = {};
  std::memcpy(part, from, count * sizeof(Half));
  return load<Vector>(part);
}

void widen(const Half* halves, int64_t size, float* values) {
  int64_t place = 0;
  for (; place + kLanes <= size; place += kLanes) store(values + place, load(halves + place));
  for (; place < size; ++place) values[place] = widened(halves[place]);
}

void narrow(const float* values, int64_t size, Half* halves) {
  int64_t place = 0;
  for (; place + kLanes <= size; place += kLanes) store_halves(halves + place, load(values + place));
  for (; place < size; ++place) halves[place] = narrowed(values[place]);
}

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
