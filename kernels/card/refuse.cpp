// See refuse.h.
#include "refuse.h"

#include <cstdarg>
#include <cstdio>

namespace lingon {
namespace {

constexpr int64_t kGranularity = 16;

std::string text_of(const Dims& dims) {
  std::string text = "(";
  for (int64_t index = 0; index < dims.rank(); ++index) text += (index ? ", " : "") + std::to_string(dims[index]);
  return text + ")";
}

}  // namespace

void refuse(const char* format, ...) {
  char message[384];
  va_list values;
  va_start(values, format);
  std::vsnprintf(message, sizeof message, format, values);
  va_end(values);
  throw Refusal(message);
}

void require_dims(const char* name, const Tensor& tensor, const Dims& wanted) {
  if (tensor.dims.rank() != wanted.rank() || !(tensor.dims == wanted))
    refuse("expects %s of shape %s, got %s", name, text_of(wanted).c_str(), text_of(tensor.dims).c_str());
}

void require_rank(const char* name, const Tensor& tensor, int64_t rank) {
  if (tensor.rank() != rank)
    refuse("expects %s of %lld dimensions, got %s", name, (long long)rank, text_of(tensor.dims).c_str());
}

void require_between(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    refuse("takes %s of %lld to %lld, got %lld", name, (long long)least, (long long)most, (long long)value);
}

void require_multiple(const char* name, int64_t value) {
  if (value <= 0 || value % kGranularity != 0)
    refuse("expects %s to be a multiple of %lld, got %lld", name, (long long)kGranularity, (long long)value);
}

int64_t head_size(int64_t dim, int64_t heads) {
  require_between("heads", heads, 1, 1024);
  const int64_t size = dim % heads == 0 ? dim / heads : 0;
  if (size != 32 && size != 64 && size != 128)
    refuse("expects heads of 32, 64 or 128 dimensions, got %lld dimensions for %lld heads", (long long)dim,
           (long long)heads);
  return size;
}

}  // namespace lingon
