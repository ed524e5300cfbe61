// Refusals in one line that name the bound and the value.
#pragma once

#include "../session.h"

namespace lingon {

// Throw a Refusal; format: as of printf.
[[noreturn, gnu::format(printf, 1, 2)]] void refuse(const char* format, ...);

// What follows refuses a tensor or a size by the name of the input.
void require_dims(const char* name, const Tensor& tensor, const Dims& wanted);
void require_rank(const char* name, const Tensor& tensor, int64_t rank);
void require_between(const char* name, int64_t value, int64_t least, int64_t most);
void require_multiple(const char* name, int64_t value);  // of 16, the granularity of the kernels' loads

// The dimensions of a head: 32, 64 or 128.
int64_t head_size(int64_t dim, int64_t heads);

}  // namespace lingon
