#include "../kernels.h"

#if defined(__x86_64__)

#define LINGON_ISA avx_vnni
#define LINGON_NAME "avx_vnni"
#define LINGON_AVX_VNNI
#include "../compute.h"
#include "processor.h"

namespace lingon {
const Kernels* avx_vnni_kernels() { return has_avx2() && has_avx_vnni() ? &avx_vnni::kKernels : nullptr; }
}  // namespace lingon

#else

namespace lingon {
const Kernels* avx_vnni_kernels() { return nullptr; }
}  // namespace lingon

#endif
