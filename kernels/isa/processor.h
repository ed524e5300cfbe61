// What the processor has, for features that __builtin_cpu_supports does not name in the oldest compilers.
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>

namespace lingon {

inline bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 29);
}

inline bool has_avx2() { return __builtin_cpu_supports("avx2") && has_f16c(); }

inline bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

// Whether there are tile registers, and products of 8-bit integers in them.
inline bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const unsigned tile = 1u << 24, int8 = 1u << 25;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tile) && (d & int8);
}

}  // namespace lingon

#endif
