// Memory that maps a file. What was read of it can be given back to the system, which reads it again when it is needed.
#pragma once

#include <cstdint>

namespace lingon {

// Make memory known to this thread as that of a mapped file, until `forget_mapped`. It must stay mapped until then.
void add_mapped(const void* begin, int64_t bytes);
void forget_mapped();

// Whether this thread knows all this memory as that of a mapped file.
bool is_mapped(const void* begin, int64_t bytes);

// Give the pages of a mapped file back, but that of the end, which what follows may be on.
void give_back(const void* begin, const void* end);

// Gives memory back while it is read from its beginning to its end, if it maps a file. A copy of large weights else
// takes the memory of both.
class ReadOnce {
 public:
  static constexpr int64_t kStep = 1 << 22;  // bytes that are given back together: each call takes a microsecond

  ReadOnce(const void* begin, int64_t bytes) : begin_((const char*)begin), mapped_(is_mapped(begin, bytes)) {}

  // Everything before `end` was read.
  void up_to(const void* end) {
    if ((const char*)end - begin_ >= kStep) finish(end);
  }

  // Nor is it read again soon.
  void finish(const void* end) {
    if (mapped_) give_back(begin_, end);
    begin_ = (const char*)end;
  }

 private:
  const char* begin_;
  bool mapped_;
};

}  // namespace lingon
