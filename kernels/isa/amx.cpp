#include "../kernels.h"

#if defined(__x86_64__) && defined(__linux__)

#define LINGON_ISA amx
#define LINGON_NAME "amx"
#define LINGON_AVX512_VNNI
#define LINGON_AMX
#include <sys/syscall.h>
#include <unistd.h>

#include "../compute.h"
#include "processor.h"

namespace lingon {
namespace {

// Linux lets a process use the registers if it asks.
bool may_use_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, and the state of the registers
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

const Kernels* amx_kernels() {
  return avx512_vnni_kernels() && has_amx() && may_use_tiles() ? &amx::kKernels : nullptr;
}
}  // namespace lingon

#else

namespace lingon {
const Kernels* amx_kernels() { return nullptr; }
}  // namespace lingon

#endif
