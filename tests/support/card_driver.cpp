// A driver of a card that hands each launch to a function of the test, and the operators for cards on the CPU.
//
// An image is the text "image of NAME". LINGON_CARD_LIBRARY is the path of the library of operators.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "../../kernels/ort_abi.h"

namespace {

using OnLaunch = int (*)(const char* name, const unsigned* grid, const unsigned* block, unsigned shared, void* stream,
                         void** arguments);
constexpr const char* kBeginning = "image of ";
constexpr int kInvalidValue = 1, kNoBinary = 209, kNotFound = 500;

OnLaunch on_launch = nullptr;
std::map<std::string, int> failures, reserved;  // by the name of the call, and bytes by the name of the kernel
int capability[] = {9, 0};

std::string operators;  // that RegisterCustomOps of the library adds, see card_driver_operators

lingon::OrtStatus* note(lingon::OrtCustomOpDomain*, const lingon::OrtCustomOp* op) {
  const char* provider = op->provider(op);
  operators += std::string(op->name(op)) + " " + (provider ? provider : "CPU");
  for (size_t index = 0; index < op->input_count(op); ++index)
    if (op->input_memory(op, index) != 0)
      operators += " " + std::to_string(index) + ":" + std::to_string(op->input_memory(op, index));
  operators += "\n";
  return nullptr;
}

int failure_of(const char* call) {
  const auto found = failures.find(call);
  return found == failures.end() ? 0 : found->second;
}

}  // namespace

extern "C" {

void card_driver_reset(OnLaunch function) {
  on_launch = function;
  failures.clear();
  reserved.clear();
  capability[0] = 9, capability[1] = 0;
}
void card_driver_fail(const char* call, int error) { failures[call] = error; }
void card_driver_set_capability(int major, int minor) { capability[0] = major, capability[1] = minor; }
int card_driver_reserved(const char* kernel) { return reserved[kernel]; }

int cuInit(unsigned) { return failure_of("cuInit"); }
int cuDeviceGetCount(int* count) {
  *count = failure_of("no card") ? 0 : 1;
  return failure_of("cuDeviceGetCount");
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? failure_of("cuDeviceGet") : 101;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute != 75 && attribute != 76) return kInvalidValue;
  *value = capability[attribute - 75];
  return failure_of("cuDeviceGetAttribute");
}
int cuGetErrorName(int error, const char** name) {
  *name = error == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE"
          : error == kNoBinary   ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
          : error == 700         ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                 : nullptr;
  return *name ? 0 : kInvalidValue;
}
int cuCtxGetCurrent(void** context) {
  *context = failure_of("no context") ? nullptr : &capability;
  return failure_of("cuCtxGetCurrent");
}
int cuModuleLoadData(void** module, const void* image) {
  if (std::strncmp((const char*)image, kBeginning, std::strlen(kBeginning)) != 0) return kNoBinary;
  *module = strdup((const char*)image + std::strlen(kBeginning));
  return failure_of("cuModuleLoadData");
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return std::strcmp((const char*)module, name) == 0 ? failure_of("cuModuleGetFunction") : kNotFound;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != 8) return kInvalidValue;
  reserved[(const char*)function] = value;
  return failure_of("cuFuncSetAttribute");
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void* stream, void** arguments, void** extra) {
  const unsigned grid[] = {x, y, z}, block[] = {threads_x, threads_y, threads_z};
  if (!x || !y || !z || y > 65535 || z > 65535 || threads_x * threads_y * threads_z > 1024 || extra)
    return kInvalidValue;
  if (const int error = failure_of("cuLaunchKernel")) return error;
  return on_launch((const char*)function, grid, block, shared, stream, arguments);
}

// Memory of the card is that of the process.
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &capability;
  return 0;
}
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuMemAlloc_v2(uint64_t* address, size_t size) {
  *address = (uint64_t)std::aligned_alloc(256, (size + 255) / 256 * 256);
  return *address ? 0 : 2;
}
int cuMemFree_v2(uint64_t address) {
  std::free((void*)address);
  return 0;
}
int cuMemcpyHtoD_v2(uint64_t target, const void* source, size_t size) {
  std::memcpy((void*)target, source, size);
  return 0;
}
int cuMemcpyDtoH_v2(void* target, uint64_t source, size_t size) {
  std::memcpy(target, (const void*)source, size);
  return 0;
}

// The operators of the library for cards, a line each: name, provider, and inputs in other memory than that of the
// provider. ONNX Runtime does not ask for the last on the CPU. The library is loaded once more, because it keeps the
// domain that it has made.
const char* card_driver_operators() {
  static lingon::Api api{};
  api.create_domain = [](const char*, lingon::OrtCustomOpDomain**) -> lingon::OrtStatus* { return nullptr; };
  api.add_operator = note;
  api.add_domain = [](lingon::OrtSessionOptions*, lingon::OrtCustomOpDomain*) -> lingon::OrtStatus* { return nullptr; };
  const lingon::OrtApiBase base{[](uint32_t) -> const lingon::Api* { return &api; }, nullptr};
  void* library = dlmopen(LM_ID_NEWLM, LINGON_CARD_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  operators.clear();
  reinterpret_cast<void* (*)(void*, const void*)>(dlsym(library, "RegisterCustomOps"))(nullptr, &base);
  dlclose(library);
  return operators.c_str();
}

// ONNX Runtime for Python calls only this function of a library.
void* RegisterCustomOps(void* options, const void* base) {
  void* library = dlopen(LINGON_CARD_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  void* found = library ? dlsym(library, "RegisterCardOpsOnCpu") : nullptr;
  return found ? reinterpret_cast<void* (*)(void*, const void*)>(found)(options, base) : nullptr;
}
}
