// The choice of the next token: the largest logits of a row and their log-probabilities.
#pragma once

#include "kernels.h"
#include "vectors.h"

namespace lingon {
namespace LINGON_ISA {
namespace {

constexpr int64_t kBlock = 64;  // logits that are compared together at first
constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// to = the logits that are allowed, kForbidden in place of the others.
void forbid(const float* logits, const uint8_t* allowed, int64_t size, float* to) {
  for (int64_t place = 0; place < size; ++place) {
    const float logit = logits[place];  // read in any case: the compiler else makes no vectors of the loop
    to[place] = allowed[place] ? logit : kForbidden;
  }
}

// The largest logit of each block into tops; returns the largest of all.
LINGON_INLINE float find_tops(const float* logits, int64_t size, float* tops) {
  float largest = kForbidden;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = size - begin < kBlock ? size - begin : kBlock;
    WideFloats most = spread<WideFloats>(kForbidden);
    each_vector(logits + begin, count, kForbidden,
                [&](WideFloats each, int64_t, int64_t) { most = larger(each, most); });
    const float top = largest_lane(most);
    tops[begin / kBlock] = top;
    largest = top > largest ? top : largest;
  }
  return largest;
}

// The sum of exp(logit - largest).
LINGON_INLINE float sum_of_exps(const float* logits, int64_t size, float largest) {
  return sum_of<4>(logits, size, kForbidden, [=](auto& values, int64_t) {
    for (WideFloats& each : values) each -= spread<WideFloats>(largest);
    exp_of_negatives(values);
  });
}

// Put a value into the `count` largest ones, which are in order. An equal one that came first stays before it.
LINGON_INLINE void insert(float value, int64_t column, int64_t count, float* values, int64_t* columns) {
  int64_t place = count - 1;
  if (!(value > values[place])) return;
  for (; place > 0 && value > values[place - 1]; --place) {
    values[place] = values[place - 1];
    columns[place] = columns[place - 1];
  }
  values[place] = value;
  columns[place] = column;
}

void choose(const float* logits, int64_t size, int64_t count, float* tops, int64_t* columns, float* log_probs) {
  const float largest = find_tops(logits, size, tops);
  const float sum = sum_of_exps(logits, size, largest);
  const int64_t blocks = (size + kBlock - 1) / kBlock;
  // At least `count` logits are as large as the count-th largest top, and those of other blocks are smaller.
  for (int64_t place = 0; place < count; ++place) columns[place] = 0, log_probs[place] = kForbidden;
  for (int64_t block = 0; block < blocks; ++block) insert(tops[block], block, count, log_probs, columns);
  const float least = log_probs[count - 1];
  for (int64_t place = 0; place < count; ++place) columns[place] = 0, log_probs[place] = kForbidden;
  for (int64_t block = 0; block < blocks; ++block) {
    if (!(tops[block] >= least)) continue;
    const int64_t end = (block + 1) * kBlock < size ? (block + 1) * kBlock : size;
    for (int64_t place = block * kBlock; place < end; ++place) insert(logits[place], place, count, log_probs, columns);
  }
  // NaN anywhere in the row makes the sum NaN, and with it every log-probability of the row.
  const float log_sum = sum > 0 ? (float)log_of(sum) : std::numeric_limits<float>::quiet_NaN();
  for (int64_t place = 0; place < count; ++place) log_probs[place] = (log_probs[place] - largest) - log_sum;
}

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
