#include "../kernels.h"

#if defined(__x86_64__)

#define LINGON_ISA avx2
#define LINGON_NAME "avx2"
#define LINGON_AVX2
#include "../compute.h"
#include "processor.h"

namespace lingon {
const Kernels* avx2_kernels() { return has_avx2() ? &avx2::kKernels : nullptr; }
}  // namespace lingon

#else

namespace lingon {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace lingon

#endif
