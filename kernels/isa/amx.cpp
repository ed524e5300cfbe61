#include "../kernels.h"

#if defined(__x86_64__) && defined(__linux__)

#define LINGON_ISA amx
#define LINGON_NAME "amx"
#define LINGON_AVX512_VNNI
#define LINGON_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../compute.h"

namespace lingon {
namespace {

// Compilers before Clang 16 have no names for them in __builtin_cpu_supports.
bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const unsigned tile = 1u << 24, int8 = 1u << 25;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tile) && (d & int8);
}

// Linux lets a process use the registers if it asks.
bool may_use_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, and the state of the registers
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

const Kernels* amx_kernels() {
  return avx512_vnni_kernels() && has_tiles() && may_use_tiles() ? &amx::kKernels : nullptr;
}
}  // namespace lingon

#else

namespace lingon {
const Kernels* amx_kernels() { return nullptr; }
}  // namespace lingon

#endif
