#include "../kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)

#include <sys/auxv.h>

#define LINGON_ISA neon
#define LINGON_NAME "neon"
#define LINGON_NEON
#include "../compute.h"

namespace lingon {
const Kernels* neon_kernels() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? &neon::kKernels : nullptr; }
}  // namespace lingon

#else

namespace lingon {
const Kernels* neon_kernels() { return nullptr; }
}  // namespace lingon

#endif
