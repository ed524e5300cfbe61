// Aligned memory, and memory of a thread that is used again.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Memory of a thread that grows and is used again: one for each type, which the next call for it takes.
template <typename T>
T* scratch(int64_t size) {
  thread_local AlignedVector<T> memory;
  if ((int64_t)memory.size() < size) memory.resize(size);
  return memory.data();
}

}  // namespace lingon
