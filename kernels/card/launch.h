// One launch of a kernel, and the memory of a run.
#pragma once

#include "images.h"
#include "names.h"
#include "refuse.h"

namespace lingon {

// The arguments of a kernel in their order, then its grid.
class Launch {
 public:
  explicit Launch(const Function& function) : function_(function) {}

  // The address of a tensor, null if it is not there. Refusal if it is not aligned for the loads of the kernels.
  Launch& pointer(const char* name, const Tensor& tensor);
  Launch& pointer(const char* name, void* address);
  Launch& integer(const char* name, int64_t value);  // Refusal beyond int32
  Launch& number(float value);

  // Enqueue it to the stream of the run. Refusal of a grid of no programs, which is an error of the driver.
  void over(const RunContext& context, int64_t x, int64_t y = 1, int64_t z = 1);

 private:
  static constexpr size_t kMost = 24;
  union Value {
    void* pointer;
    int32_t integer;
    float number;
  };

  Value& next(char kind);

  const Function& function_;
  Value values_[kMost];
  size_t count_ = 0;
};

// Scratch memory, in parts whose addresses suit the kernels. It is given back when the run has enqueued its kernels:
// later users of it are behind them in the stream.
class Scratch {
 public:
  Scratch(const ScratchAllocator& allocator, size_t bytes)
      : allocator_(allocator), memory_((char*)allocator.allocate(bytes)), next_(memory_) {}
  ~Scratch() { allocator_.release(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  static size_t padded(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
  void* part(size_t bytes) {
    void* found = next_;
    next_ += padded(bytes);
    return found;
  }

 private:
  static constexpr size_t kLine = 256;
  const ScratchAllocator& allocator_;
  char *memory_, *next_;
};

}  // namespace lingon
