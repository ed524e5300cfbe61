// See launch.h.
#include "launch.h"

#include <cstdint>
#include <limits>

namespace lingon {
namespace {

constexpr uintptr_t kAlignment = 16;  // bytes that the kernels load together
constexpr int64_t kMostPrograms = std::numeric_limits<int32_t>::max(), kMostFurther = 65535;  // of a grid, x and y or z

}  // namespace

Launch::Value& Launch::next(char kind) {
  if (count_ >= function_.parameters.size() || count_ + 2 >= kMost || function_.parameters[count_] != kind)
    refuse("passes other arguments to %s than %s", function_.name.c_str(), function_.parameters.c_str());
  return values_[count_++];
}

Launch& Launch::pointer(const char* name, const Tensor& tensor) {
  return pointer(name, tensor.given() && tensor.size() > 0 ? tensor.data : nullptr);
}

Launch& Launch::pointer(const char* name, void* address) {
  if ((uintptr_t)address % kAlignment != 0)
    refuse("expects %s at a multiple of %d bytes, got the address %p", name, (int)kAlignment, address);
  next('p').pointer = address;
  return *this;
}

Launch& Launch::integer(const char* name, int64_t value) {
  require_between(name, value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  next('i').integer = (int32_t)value;
  return *this;
}

Launch& Launch::number(float value) {
  next('f').number = value;
  return *this;
}

void Launch::over(const RunContext& context, int64_t x, int64_t y, int64_t z) {
  if (count_ != function_.parameters.size())
    refuse("passes other arguments to %s than %s", function_.name.c_str(), function_.parameters.c_str());
  require_between("a grid", x, 1, kMostPrograms);
  require_between("a grid", y, 1, kMostFurther);
  require_between("a grid", z, 1, kMostFurther);
  // Triton adds two addresses of scratch memory to the arguments. These kernels need none.
  values_[count_].pointer = values_[count_ + 1].pointer = nullptr;
  void* arguments[kMost];
  for (size_t index = 0; index < count_ + 2; ++index) arguments[index] = &values_[index];
  const Driver& driver = *function_.driver;
  const int error = driver.launch(function_.handle, (unsigned)x, (unsigned)y, (unsigned)z, function_.threads, 1, 1,
                                  function_.shared_bytes, context.stream(), arguments, nullptr);
  check_driver(driver, error, "launching", function_.name.c_str());
}

}  // namespace lingon
