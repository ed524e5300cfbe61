#include "../kernels.h"

#if defined(__x86_64__)

#define LINGON_ISA avx_vnni
#define LINGON_NAME "avx_vnni"
#define LINGON_AVX_VNNI
#include <cpuid.h>

#include "../compute.h"

namespace lingon {
namespace {

// Compilers before Clang 17 have no name for it in __builtin_cpu_supports.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

}  // namespace

const Kernels* avx_vnni_kernels() {
  return __builtin_cpu_supports("avx2") && has_avx_vnni() ? &avx_vnni::kKernels : nullptr;
}
}  // namespace lingon

#else

namespace lingon {
const Kernels* avx_vnni_kernels() { return nullptr; }
}  // namespace lingon

#endif
