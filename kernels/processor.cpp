// Which instruction sets the processor has. This file is compiled without the flags of any, because it runs on all
// processors.
#include <string>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace lingon {

// The kernels of an instruction set, see isa.cpp.
#define LINGON_DECLARE(name) \
  namespace name {           \
  const Kernels& table();    \
  }
LINGON_DECLARE(portable)
LINGON_DECLARE(avx2)
LINGON_DECLARE(avx_vnni)
LINGON_DECLARE(avx512_vnni)
LINGON_DECLARE(amx)
LINGON_DECLARE(neon)
LINGON_DECLARE(i8mm)

namespace {

bool on_all() { return true; }

#if defined(__x86_64__)

struct Features {
  unsigned a = 0, b = 0, c = 0, d = 0;

  // The registers after CPUID; 0 if the processor does not have this part of it.
  Features(unsigned leaf, unsigned part) { __get_cpuid_count(leaf, part, &a, &b, &c, &d); }
};

// AVX2, conversions of float16, and fused multiply-add; __builtin_cpu_supports names the first alone in old compilers.
bool has_avx2() {
  const unsigned found = Features(1, 0).c;
  return __builtin_cpu_supports("avx2") && found & 1u << 29 && found & 1u << 12;
}

bool has_avx_vnni() { return has_avx2() && Features(7, 1).a & 1u << 4; }

bool has_avx512_vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

// Tile registers, and products of 8-bit integers in them. Linux lets a process use the registers if it asks.
bool has_amx() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, and the state of the registers
  const unsigned found = Features(7, 0).d;
  return has_avx512_vnni() && found & 1u << 24 && found & 1u << 25 && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

#elif defined(__aarch64__)

bool has_dot_products() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }

// Products of 8-bit matrices in vector registers. Those of SVE have a bit of their own.
bool has_i8mm() {
  constexpr unsigned long kI8mm = 1ul << 13;  // HWCAP2_I8MM, which glibc before 2.33 does not name
  return has_dot_products() && getauxval(AT_HWCAP2) & kI8mm;
}

#endif

// The instruction sets that the library is compiled for, the fastest first.
const struct {
  bool (*there)();
  const Kernels& (*table)();
} kCompiled[] = {
#if defined(__x86_64__)
    {has_amx, amx::table},
    {has_avx512_vnni, avx512_vnni::table},
    {has_avx_vnni, avx_vnni::table},
    {has_avx2, avx2::table},
#elif defined(__aarch64__)
    {has_i8mm, i8mm::table},
    {has_dot_products, neon::table},
#endif
    {on_all, portable::table}};

}  // namespace

const Kernels* kernels_named(const char* name) {
  for (const auto& each : kCompiled) {
    const Kernels& found = each.table();
    if (name && *name && name != std::string(found.name)) continue;
    if (each.there()) return &found;
  }
  return nullptr;
}

}  // namespace lingon
