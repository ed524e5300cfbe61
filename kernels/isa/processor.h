// What the processor has, for features that __builtin_cpu_supports does not name in the oldest compilers.
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>

namespace lingon {

struct Features {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// The registers after CPUID; 0 if the processor does not have this part of it.
inline Features features(unsigned leaf, unsigned part) {
  Features found;
  __get_cpuid_count(leaf, part, &found.a, &found.b, &found.c, &found.d);
  return found;
}

// AVX2, conversions of float16, and fused multiply-add.
inline bool has_avx2() {
  const unsigned found = features(1, 0).c;
  return __builtin_cpu_supports("avx2") && found & 1u << 29 && found & 1u << 12;
}

inline bool has_avx_vnni() { return features(7, 1).a & 1u << 4; }

// Whether there are tile registers, and products of 8-bit integers in them.
inline bool has_amx() {
  const unsigned found = features(7, 0).d;
  return found & 1u << 24 && found & 1u << 25;
}

}  // namespace lingon

#endif
