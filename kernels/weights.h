// The weights of a product as the kernels read them. Nodes and sessions with equal weights share one copy.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace lingon {

// Memory that begins with a line of the cache: a load of 64 bytes else takes two lines.
template <typename T>
struct AlignedAllocator {
  typedef T value_type;
  static constexpr std::align_val_t kLine{64};

  AlignedAllocator() = default;
  template <typename U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(size_t count) { return (T*)::operator new(count * sizeof(T), kLine); }
  void deallocate(T* memory, size_t) { ::operator delete(memory, kLine); }
  bool operator==(const AlignedAllocator&) const { return true; }
  bool operator!=(const AlignedAllocator&) const { return false; }
};

template <typename T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

struct PackedWeights {
  AlignedVector<int8_t> panels;  // see Weights in kernels.h
  std::vector<uint16_t> order;
  std::vector<int32_t> fours;
  std::vector<int32_t> sums;
  int64_t inputs, outputs;
};

// Pack columns (inputs, outputs); ordered: whether the kernels may choose the order of the blocks. Throws Refusal if a
// weight is beyond +-63 or a size beyond what 32-bit sums hold.
std::shared_ptr<const PackedWeights> pack(const int8_t* columns, int64_t inputs, int64_t outputs, bool ordered);

}  // namespace lingon
