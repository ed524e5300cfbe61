// The kernels of one instruction set. build.py compiles this file once for each, with the flags that turn it on;
// LINGON_ISA is its name, which is a macro as well: LINGON_AVX2 for avx2.
#ifdef LINGON_AMX
#define LINGON_AVX512_VNNI  // it has these instructions too
#endif
#ifdef LINGON_I8MM
#define LINGON_NEON  // likewise
#endif

#include "compute.h"

namespace lingon {
namespace LINGON_ISA {

const Kernels& table() { return kKernels; }

}  // namespace LINGON_ISA
}  // namespace lingon
