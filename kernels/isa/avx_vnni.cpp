#include "../kernels.h"

#if defined(__x86_64__)

#define LINGON_ISA avx_vnni
#define LINGON_NAME "avx_vnni"
#define LINGON_AVX_VNNI
#include "../compute.h"

namespace lingon {
const Kernels* avx_vnni_kernels() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avxvnni") ? &avx_vnni::kKernels : nullptr; }
}  // namespace lingon

#else

namespace lingon {
const Kernels* avx_vnni_kernels() { return nullptr; }
}  // namespace lingon

#endif
