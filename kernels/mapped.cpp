// See mapped.h.
#include "mapped.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace lingon {
namespace {

thread_local std::vector<std::pair<const char*, const char*>> mapped;  // begin and end of each file

}  // namespace

void add_mapped(const void* begin, int64_t bytes) {
  mapped.emplace_back((const char*)begin, (const char*)begin + bytes);
}

void forget_mapped() { mapped.clear(); }

bool is_mapped(const void* begin, int64_t bytes) {
  const auto* from = (const char*)begin;
  return std::any_of(mapped.begin(), mapped.end(),
                     [=](const auto& each) { return each.first <= from && from + bytes <= each.second; });
}

void give_back(const void* begin, const void* end) {
  static const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t from = (uintptr_t)begin / page * page, to = (uintptr_t)end / page * page;
  if (from < to) madvise((void*)from, to - from, MADV_DONTNEED);
}

}  // namespace lingon
