// The kernels as images (cubin or PTX) by name, and as functions that the driver has loaded.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "driver.h"

namespace lingon {

// A kernel in the context of a device. It lives until the process ends.
struct Function {
  std::string name, parameters;  // p pointer, i int32, f float32, in the order of its arguments
  const Driver* driver;
  void* handle;
  unsigned threads, shared_bytes;
};

// Keep an image, in place of an earlier one of the name. Refusal if the operators pass it other arguments.
void add_image(const char* name, const void* image, size_t size, const char* parameters, int warps, int shared_bytes);

void forget_images();

// The functions that a node may launch.
class Functions {
 public:
  // Load a kernel in the current context of this thread, unless that is done. Refusal if there is no image of the
  // name.
  void load(const char* name);

  const Function& operator[](const char* name) const;

 private:
  std::vector<const Function*> loaded_;
};

}  // namespace lingon
