// What the operators use of ONNX Runtime, in plain C++: a test of the operators needs no Python, and a sanitizer sees
// all of it. Every tensor is a block of memory of its exact size, so that a sanitizer reports what lies beyond it.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "../ort_abi.h"

namespace lingon {

struct OrtStatus {
  int code;
  std::string message;
};

inline int64_t size_of(ElementType type) {
  switch (type) {
    case ElementType::kInt64:
      return 8;
    case ElementType::kFloat:
    case ElementType::kInt32:
      return 4;
    case ElementType::kFloat16:
      return 2;
    default:
      return 1;
  }
}

// The product of dimensions; -1 if one is negative or the product is absurd.
inline int64_t elements_of(const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (int64_t dim : dims)
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) return -1;
  return product;
}

struct OrtValue {
  ElementType type;
  std::vector<int64_t> dims;
  std::unique_ptr<void, void (*)(void*)> data{nullptr, std::free};

  OrtValue(ElementType type, std::vector<int64_t> dims) : type(type), dims(std::move(dims)) {
    const int64_t bytes = elements_of(this->dims) * size_of(type);
    if (bytes > 0) data.reset(std::malloc(bytes));  // null if there are no elements
    if (bytes > 0) std::memset(data.get(), 0x5a, bytes);
  }
  int64_t size() const { return elements_of(dims); }
  template <typename T>
  T* as() const {
    return (T*)data.get();
  }
};

using Value = std::shared_ptr<OrtValue>;

struct OrtKernelInfo {
  std::map<std::string, float> numbers;
  std::map<std::string, int64_t> integers;
  std::vector<Value> inputs;
  size_t first_constant, last_constant;  // the inputs between them are constant
};

struct OrtKernelContext {
  const OrtCustomOp* op;
  std::vector<Value> inputs, outputs;  // an output that is there already is used in place
  int threads;
};

struct OrtCustomOpDomain {
  std::vector<const OrtCustomOp*> operators;
};

// Allocations fail, but for those of the functions here: `operator new` reads this.
inline std::atomic<int> allocations_left{-1};  // -1: none fails
inline thread_local int sheltered = 0;

struct Shelter {
  Shelter() { ++sheltered; }
  ~Shelter() { --sheltered; }
};

constexpr int64_t kMostBytes = 1 << 28;  // ONNX Runtime refuses what it cannot allocate; so does this

inline OrtStatus* failed(const char* message) { return new OrtStatus{kFailure, message}; }

inline OrtStatus* make_output(OrtKernelContext* context, size_t index, const int64_t* dims, size_t rank,
                              OrtValue** value) {
  const Shelter shelter;
  const std::vector<int64_t> wanted(dims, dims + rank);
  const int64_t size = elements_of(wanted);
  if (size < 0 || size > kMostBytes) return failed("the shape of an output is absurd");
  Value& found = context->outputs.at(index);
  if (found && found->dims != wanted) return failed("an output that is there has another shape");
  if (!found) found = std::make_shared<OrtValue>(context->op->output_type(context->op, index), wanted);
  *value = found.get();
  return nullptr;
}

// Runs the parts of an operator on threads of their own, so that each one has new memory.
inline OrtStatus* run_parts(const OrtKernelContext* context, void (*body)(void*, size_t), size_t count, size_t,
                            void* data) {
  const Shelter shelter;
  if (context->threads == 1) {
    for (size_t part = 0; part < count; ++part) body(data, part);
    return nullptr;
  }
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < context->threads; ++thread)
    threads.emplace_back([&] {
      for (size_t part = next++; part < count; part = next++) body(data, part);
    });
  for (std::thread& thread : threads) thread.join();
  return nullptr;
}

template <typename T>
OrtStatus* attribute(const std::map<std::string, T>& all, const char* name, T* value) {
  const Shelter shelter;
  const auto found = all.find(name);
  if (found == all.end()) return failed("an attribute is missing");
  *value = found->second;
  return nullptr;
}

// The table of functions, at the places of ONNX Runtime, which ort_abi.h must have too.
inline const Api* fill(void** places) {
  const auto put = [places](size_t place, auto* function) { places[place] = (void*)function; };
  put(
      0, +[](int code, const char* message) {
        const Shelter shelter;
        return new OrtStatus{code, message};
      });
  put(2, +[](const OrtStatus* status) { return status->message.c_str(); });
  put(
      26, +[](const char*, OrtCustomOpDomain** domain) -> OrtStatus* {
        *domain = new OrtCustomOpDomain;
        return nullptr;
      });
  put(
      27, +[](OrtCustomOpDomain* domain, const OrtCustomOp* op) -> OrtStatus* {
        domain->operators.push_back(op);
        return nullptr;
      });
  put(
      28, +[](OrtSessionOptions* options, OrtCustomOpDomain* domain) -> OrtStatus* {
        *(OrtCustomOpDomain**)options = domain;
        return nullptr;
      });
  put(
      51, +[](OrtValue* value, void** data) -> OrtStatus* {
        *data = value->data.get();
        return nullptr;
      });
  put(
      85,
      +[](const OrtKernelInfo* info, const char* name, float* value) { return attribute(info->numbers, name, value); });
  put(
      86, +[](const OrtKernelInfo* info, const char* name, int64_t* value) {
        return attribute(info->integers, name, value);
      });
  put(
      90, +[](const OrtKernelContext* context, size_t index, const OrtValue** value) -> OrtStatus* {
        *value = index < context->inputs.size() ? context->inputs[index].get() : nullptr;
        return nullptr;
      });
  put(91, make_output);
  put(93, +[](OrtStatus* status) { delete status; });
  put(
      230, +[](const OrtKernelInfo* info, size_t* count) -> OrtStatus* {
        *count = info->inputs.size();
        return nullptr;
      });
  put(
      249, +[](const OrtKernelInfo* info, size_t index, int* constant, const OrtValue** value) -> OrtStatus* {
        *constant = info->first_constant <= index && index < info->last_constant && index < info->inputs.size();
        *value = *constant ? info->inputs[index].get() : nullptr;
        return nullptr;
      });
  put(274, run_parts);
  put(
      414, +[](const OrtValue* value, ElementType* type, const int64_t** dims, size_t* rank) -> OrtStatus* {
        *type = value->type, *dims = value->dims.data(), *rank = value->dims.size();
        return nullptr;
      });
  return (const Api*)places;
}

inline const Api* fake_api() {
  static void* places[415] = {};
  static const Api* const filled = fill(places);
  return filled;
}

// The operators of the library, by name.
inline std::map<std::string, const OrtCustomOp*> registered_operators(OrtStatus* (*add)(OrtSessionOptions*,
                                                                                        const OrtApiBase*)) {
  static const OrtApiBase base{[](uint32_t) { return fake_api(); }, [] { return "fake"; }};
  OrtCustomOpDomain* domain = nullptr;
  std::map<std::string, const OrtCustomOp*> found;
  if (OrtStatus* status = add((OrtSessionOptions*)&domain, &base)) {
    std::fprintf(stderr, "%s\n", status->message.c_str());
    std::exit(1);
  }
  for (const OrtCustomOp* op : domain->operators) found[op->name(op)] = op;
  return found;
}

}  // namespace lingon
