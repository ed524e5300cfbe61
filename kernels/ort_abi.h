// The part of ONNX Runtime's C interface that the operators use, as binary interface: the wheels of ONNX Runtime bring
// no headers. Functions keep their index in its table from version to version. New ones are added at the end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lingon {

struct OrtStatus;  // null is success
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtValue;
struct OrtAllocator;
struct OrtCustomOp;

enum class ElementType : int {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10
};
enum class Arity : int { kRequired = 0, kOptional = 1 };
constexpr int kFailure = 1, kInvalidArgument = 2;  // error codes
constexpr int kDeviceMemory = 0, kHostInput = -2;  // of the provider, and an input in main memory
constexpr uint32_t kApiVersion = 24;               // the first with all functions below: ONNX Runtime 1.24

// The table of functions. The unused ones between two functions have the number of the first of them.
struct Api {
  OrtStatus* (*create_status)(int code, const char* message);
  void* unused_1[1];
  const char* (*message_of)(const OrtStatus*);
  void* unused_3[23];
  OrtStatus* (*create_domain)(const char* name, OrtCustomOpDomain**);
  OrtStatus* (*add_operator)(OrtCustomOpDomain*, const OrtCustomOp*);
  OrtStatus* (*add_domain)(OrtSessionOptions*, OrtCustomOpDomain*);
  void* unused_29[22];
  OrtStatus* (*data_of)(OrtValue*, void**);
  void* unused_52[23];
  OrtStatus* (*allocate)(OrtAllocator*, size_t bytes, void**);
  OrtStatus* (*free)(OrtAllocator*, void*);
  void* unused_77[8];
  OrtStatus* (*float_attribute)(const OrtKernelInfo*, const char* name, float*);
  OrtStatus* (*integer_attribute)(const OrtKernelInfo*, const char* name, int64_t*);
  void* unused_87[3];
  OrtStatus* (*input)(const OrtKernelContext*, size_t index, const OrtValue**);
  OrtStatus* (*output)(OrtKernelContext*, size_t index, const int64_t* dims, size_t rank, OrtValue**);
  void* unused_92[1];
  void (*release_status)(OrtStatus*);
  void* unused_94[38];
  void (*release_allocator)(OrtAllocator*);
  void* unused_133[60];
  // The CUDA stream that a run enqueues its kernels to; null on the CPU.
  OrtStatus* (*gpu_stream)(const OrtKernelContext*, void**);
  void* unused_194[36];
  OrtStatus* (*input_count)(const OrtKernelInfo*, size_t*);
  void* unused_231[18];
  OrtStatus* (*constant_input)(const OrtKernelInfo*, size_t index, int* constant, const OrtValue**);
  void* unused_250[24];
  // Call body(data, 0) to body(data, count - 1) on the threads of the session; batches: 0 leaves them to it.
  OrtStatus* (*run_parts)(const OrtKernelContext*, void (*body)(void*, size_t), size_t count, size_t batches, void*);
  void* unused_275[3];
  // The caller releases it.
  OrtStatus* (*allocator_of)(const OrtKernelInfo*, int memory, OrtAllocator**);
  void* unused_279[135];
  // The dimensions belong to the value.
  OrtStatus* (*shape_of)(const OrtValue*, ElementType*, const int64_t** dims, size_t* rank);
};

// The numbers of the functions are those of ONNX Runtime.
static_assert(offsetof(Api, free) == 76 * sizeof(void*));
static_assert(offsetof(Api, release_allocator) == 132 * sizeof(void*));
static_assert(offsetof(Api, gpu_stream) == 193 * sizeof(void*));
static_assert(offsetof(Api, constant_input) == 249 * sizeof(void*));
static_assert(offsetof(Api, allocator_of) == 278 * sizeof(void*));
static_assert(offsetof(Api, shape_of) == 414 * sizeof(void*));

struct OrtApiBase {
  const Api* (*get_api)(uint32_t version);  // null if this ONNX Runtime does not have the version
  const char* (*get_version)();
};

// What ONNX Runtime asks an operator. Functions that are null are not asked.
struct OrtCustomOp {
  uint32_t version;
  void* (*create_kernel)(const OrtCustomOp*, const Api*, const OrtKernelInfo*);
  const char* (*name)(const OrtCustomOp*);
  const char* (*provider)(const OrtCustomOp*);
  ElementType (*input_type)(const OrtCustomOp*, size_t);
  size_t (*input_count)(const OrtCustomOp*);
  ElementType (*output_type)(const OrtCustomOp*, size_t);
  size_t (*output_count)(const OrtCustomOp*);
  void (*compute)(void*, OrtKernelContext*);
  void (*destroy)(void*);
  Arity (*input_arity)(const OrtCustomOp*, size_t);
  Arity (*output_arity)(const OrtCustomOp*, size_t);
  int (*input_memory)(const OrtCustomOp*, size_t);
  int (*least_variadic_inputs)(const OrtCustomOp*);
  int (*equal_variadic_inputs)(const OrtCustomOp*);
  int (*least_variadic_outputs)(const OrtCustomOp*);
  int (*equal_variadic_outputs)(const OrtCustomOp*);
  OrtStatus* (*create_kernel_or_status)(const OrtCustomOp*, const Api*, const OrtKernelInfo*, void**);
  OrtStatus* (*compute_or_status)(void*, OrtKernelContext*);
  OrtStatus* (*infer_shapes)(const OrtCustomOp*, void*);
  int (*first_version)(const OrtCustomOp*);
  int (*last_version)(const OrtCustomOp*);
  size_t (*may_be_in_place)(int**, int**);
  void (*release_in_place)(int*, int*);
  size_t (*may_be_aliases)(int**, int**);
  void (*release_aliases)(int*, int*);
};

}  // namespace lingon
