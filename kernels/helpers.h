// Helpers: threads that compute parts of the operators of another thread.
//
// The threads of a session of ONNX Runtime take longer to begin than a product of a small model takes. Helpers wait
// for the next part without sleep for a while, so that a part of ten microseconds is worth one of them. They are for a
// thread that has the cores to itself: it asks for them, and one thread uses them at a time.
#pragma once

#include <cstddef>

namespace lingon {

constexpr int kMostHelpers = 15;

// Have the operators that this thread runs from now on use so many helpers; 0: none. Where the system starts no more
// threads there are fewer.
void use_helpers(int count);

// The helpers that the operators of this thread use.
int helpers_in_use();

// Call body(data, 0) to body(data, parts - 1) on this thread and its helpers, in any order; 0 < parts < 256. Returns
// false, and calls none, while the helpers work for another thread.
bool run_with_helpers(void (*body)(void*, size_t), size_t parts, void* data);

}  // namespace lingon
