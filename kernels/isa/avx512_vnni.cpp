#include "../kernels.h"

#if defined(__x86_64__)

#define LINGON_ISA avx512_vnni
#define LINGON_NAME "avx512_vnni"
#define LINGON_AVX512_VNNI
#include "../compute.h"
#include "processor.h"

namespace lingon {
const Kernels* avx512_vnni_kernels() {
  const bool there = has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  return there ? &avx512_vnni::kKernels : nullptr;
}
}  // namespace lingon

#else

namespace lingon {
const Kernels* avx512_vnni_kernels() { return nullptr; }
}  // namespace lingon

#endif
