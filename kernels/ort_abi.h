// The part of ONNX Runtime's C interface that the operators use, as binary interface: the wheels of ONNX Runtime bring
// no headers. Functions keep their place in its table from version to version; new ones are added at the end.
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
constexpr uint32_t kApiVersion = 24;               // the first with all functions below: ONNX Runtime 1.24

// The table of functions. A member is called through its place, which its type names.
class Api {
 public:
  template <typename Function>
  Function at(size_t place) const {
    return (Function)places_[place];
  }

  OrtStatus* create_status(int code, const char* message) const {
    return at<OrtStatus* (*)(int, const char*)>(0)(code, message);
  }
  const char* message_of(const OrtStatus* status) const { return at<const char* (*)(const OrtStatus*)>(2)(status); }
  OrtStatus* create_domain(const char* name, OrtCustomOpDomain** domain) const {
    return at<OrtStatus* (*)(const char*, OrtCustomOpDomain**)>(26)(name, domain);
  }
  OrtStatus* add_operator(OrtCustomOpDomain* domain, const OrtCustomOp* added) const {
    return at<OrtStatus* (*)(OrtCustomOpDomain*, const OrtCustomOp*)>(27)(domain, added);
  }
  OrtStatus* add_domain(OrtSessionOptions* options, OrtCustomOpDomain* domain) const {
    return at<OrtStatus* (*)(OrtSessionOptions*, OrtCustomOpDomain*)>(28)(options, domain);
  }
  OrtStatus* data_of(OrtValue* value, void** data) const {
    return at<OrtStatus* (*)(OrtValue*, void**)>(51)(value, data);
  }
  OrtStatus* float_attribute(const OrtKernelInfo* info, const char* name, float* value) const {
    return at<OrtStatus* (*)(const OrtKernelInfo*, const char*, float*)>(85)(info, name, value);
  }
  OrtStatus* integer_attribute(const OrtKernelInfo* info, const char* name, int64_t* value) const {
    return at<OrtStatus* (*)(const OrtKernelInfo*, const char*, int64_t*)>(86)(info, name, value);
  }
  OrtStatus* input(const OrtKernelContext* context, size_t index, const OrtValue** value) const {
    return at<OrtStatus* (*)(const OrtKernelContext*, size_t, const OrtValue**)>(90)(context, index, value);
  }
  OrtStatus* output(OrtKernelContext* context, size_t index, const int64_t* dims, size_t rank, OrtValue** value) const {
    return at<OrtStatus* (*)(OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**)>(91)(context, index, dims,
                                                                                                 rank, value);
  }
  void release_status(OrtStatus* status) const { at<void (*)(OrtStatus*)>(93)(status); }
  OrtStatus* input_count(const OrtKernelInfo* info, size_t* count) const {
    return at<OrtStatus* (*)(const OrtKernelInfo*, size_t*)>(230)(info, count);
  }
  OrtStatus* constant_input(const OrtKernelInfo* info, size_t index, int* constant, const OrtValue** value) const {
    return at<OrtStatus* (*)(const OrtKernelInfo*, size_t, int*, const OrtValue**)>(249)(info, index, constant, value);
  }
  // Call body(data, 0) to body(data, count - 1) on the threads of the session.
  OrtStatus* run_parts(const OrtKernelContext* context, void (*body)(void*, size_t), size_t count, void* data) const {
    const auto function =
        at<OrtStatus* (*)(const OrtKernelContext*, void (*)(void*, size_t), size_t, size_t, void*)>(274);
    return function(context, body, count, 0, data);
  }
  // The dimensions belong to the value.
  OrtStatus* shape_of(const OrtValue* value, ElementType* type, const int64_t** dims, size_t* rank) const {
    return at<OrtStatus* (*)(const OrtValue*, ElementType*, const int64_t**, size_t*)>(414)(value, type, dims, rank);
  }

 private:
  void* places_[415];
};

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
