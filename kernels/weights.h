// The weights of a product as the kernels read them. Nodes and sessions with equal weights share one copy.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace lingon {

struct PackedWeights {
  std::vector<int8_t> panels;  // see Weights in kernels.h
  std::vector<int32_t> sums;
  int64_t inputs, outputs;
};

// Pack columns (inputs, outputs). Throws Refusal if a weight is beyond +-63 or a size beyond what 32-bit sums hold.
std::shared_ptr<const PackedWeights> pack(const int8_t* columns, int64_t inputs, int64_t outputs);

}  // namespace lingon
