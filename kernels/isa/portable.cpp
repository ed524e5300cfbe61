#define LINGON_ISA portable
#define LINGON_NAME "portable"
#include "../compute.h"

namespace lingon {
const Kernels* portable_kernels() { return &portable::kKernels; }
}  // namespace lingon
