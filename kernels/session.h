// What the operators see of ONNX Runtime: tensors, attributes, and loops over the threads of the session.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "helpers.h"
#include "kernels.h"
#include "ort_abi.h"

namespace lingon {

// An input that an operator refuses; ONNX Runtime reports the message as the error of the run or of the session.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A failure that no input of the operator explains.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool condition, const char* message) {
  if (!condition) throw Refusal(message);
}

// The dimensions of a tensor.
class Dims {
 public:
  static constexpr size_t kMost = 6;

  Dims() = default;
  Dims(std::initializer_list<int64_t> dims) : Dims(dims.begin(), dims.size()) {}
  Dims(const int64_t* dims, size_t rank) : rank_(rank) {
    require(rank <= kMost, "got a tensor of more than six dimensions");
    std::copy_n(dims, rank, dims_);
  }

  int64_t rank() const { return (int64_t)rank_; }
  const int64_t* data() const { return dims_; }
  int64_t operator[](size_t index) const { return dims_[index]; }
  int64_t last() const { return rank_ ? dims_[rank_ - 1] : 1; }
  bool operator==(const Dims& other) const {
    return std::equal(dims_, dims_ + rank_, other.dims_, other.dims_ + other.rank_);
  }

  int64_t size() const {
    int64_t product = 1;
    for (size_t index = 0; index < rank_; ++index)
      require(!__builtin_mul_overflow(product, dims_[index], &product), "got a tensor of too many elements");
    return product;
  }

  Dims with_last(int64_t last) const {
    Dims found = *this;
    if (rank_) found.dims_[rank_ - 1] = last;
    return found;
  }

 private:
  int64_t dims_[kMost] = {};
  size_t rank_ = 0;
};

// The type of an element, as ONNX Runtime names it and as a refusal does.
struct Element {
  ElementType type;
  const char* expected;
};
constexpr Element element_of(float*) { return {ElementType::kFloat, "expects float32"}; }
constexpr Element element_of(Half*) { return {ElementType::kFloat16, "expects float16"}; }
constexpr Element element_of(int64_t*) { return {ElementType::kInt64, "expects int64"}; }
constexpr Element element_of(int32_t*) { return {ElementType::kInt32, "expects int32"}; }
constexpr Element element_of(int8_t*) { return {ElementType::kInt8, "expects int8"}; }
constexpr Element element_of(bool*) { return {ElementType::kBool, "expects bool"}; }

// A tensor in the memory of its provider; its data is null for an optional input that is not there.
struct Tensor {
  void* data = nullptr;
  ElementType type = ElementType::kUndefined;
  Dims dims;

  bool given() const { return type != ElementType::kUndefined; }
  int64_t rank() const { return dims.rank(); }
  int64_t size() const { return dims.size(); }

  template <typename T>
  T* as() const {
    constexpr Element wanted = element_of((T*)nullptr);
    require(type == wanted.type, wanted.expected);
    return (T*)data;
  }
};

// The attributes and the constant inputs of a node, while its kernel is made.
class NodeInfo {
 public:
  NodeInfo(const Api& api, const OrtKernelInfo* info) : api_(api), info_(info) {}

  float number(const char* name) const;
  int64_t integer(const char* name) const;
  int64_t integer(const char* name, int64_t otherwise) const;  // if the node does not have it
  Tensor constant(size_t index) const;                         // Refusal if the input is not constant
  bool constant_dims(size_t index, Dims* dims) const;          // false if the input is not constant

 private:
  friend class ScratchAllocator;
  const Api& api_;
  const OrtKernelInfo* info_;
};

// Memory of the provider of a node, for the length of a run.
class ScratchAllocator {
 public:
  explicit ScratchAllocator(const NodeInfo& info);
  ~ScratchAllocator();
  ScratchAllocator(const ScratchAllocator&) = delete;
  ScratchAllocator& operator=(const ScratchAllocator&) = delete;

  void* allocate(size_t bytes) const;  // aligned for vectors
  void release(void* memory) const noexcept;

 private:
  const Api& api_;
  OrtAllocator* allocator_ = nullptr;
};

// The inputs and outputs of one run of a node.
class RunContext {
 public:
  RunContext(const Api& api, OrtKernelContext* context) : api_(api), context_(context) {}

  Tensor input(size_t index) const;
  Tensor output(size_t index, const Dims& dims) const;  // not given if the node does not have it
  void* stream() const;  // the CUDA stream of the run; null on the CPU

  // Call body(first, last) for parts of 0..count-1, each at least `grain` long, on the helpers of this thread, or on
  // the threads of the session, which take longer to begin: each of their parts is kPoolGrains times as long at least.
  template <typename Body>
  void parallel(int64_t count, int64_t grain, const Body& body) const {
    const int helpers = helpers_in_use();
    if (!helpers) grain *= kPoolGrains;
    const int64_t most = helpers ? helpers + 1 : kMostParts;
    const int64_t parts = std::min<int64_t>(count / std::max<int64_t>(grain, 1), most);
    if (parts <= 1) {
      body((int64_t)0, count);
      return;
    }
    struct Work {
      const Body& body;
      int64_t count, parts;
      std::mutex mutex;
      std::exception_ptr error;
    } work{body, count, parts, {}, {}};
    run_parts(
        [](void* data, size_t part) {
          Work& work = *(Work*)data;
          const int64_t index = (int64_t)part;
          try {
            work.body(work.count * index / work.parts, work.count * (index + 1) / work.parts);
          } catch (...) {  // the process ends if an exception leaves a thread of ONNX Runtime
            const std::lock_guard<std::mutex> lock(work.mutex);
            work.error = std::current_exception();
          }
        },
        parts, &work);
    if (work.error) std::rethrow_exception(work.error);
  }

 private:
  static constexpr int64_t kMostParts = 16, kPoolGrains = 4;
  void run_parts(void (*body)(void*, size_t), size_t parts, void* data) const;

  const Api& api_;
  OrtKernelContext* context_;
};

}  // namespace lingon
