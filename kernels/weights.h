// The weights of a product as the kernels read them. Nodes and sessions with equal weights share one copy.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memory.h"

namespace lingon {

struct PackedWeights {
  AlignedVector<int8_t> panels;  // see Weights in kernels.h
  std::vector<uint16_t> order;
  std::vector<int32_t> fours;
  std::vector<int32_t> sums;
  int64_t inputs, outputs;
};

// Pack columns (inputs, outputs). Throws Refusal if a weight is beyond +-63 or a size beyond what 32-bit sums hold.
std::shared_ptr<const PackedWeights> pack(const int8_t* columns, int64_t inputs, int64_t outputs);

// Weights with those of each output together, from which panels of any outputs are made.
struct OutputRows {
  AlignedVector<int8_t> rows;  // (outputs, padded_inputs), zeros at the ends
  std::vector<int32_t> sums;   // (outputs)
  int64_t inputs, outputs;
};

// The rows of columns (inputs, outputs). Throws Refusal as `pack` does.
std::shared_ptr<const OutputRows> rows_of_outputs(const int8_t* columns, int64_t inputs, int64_t outputs);

template <typename T>
struct PackedFloats {
  AlignedVector<T> panels;  // see FloatWeights in kernels.h
  int64_t inputs, outputs;
};

// Pack weights (outputs, inputs) of float or Half. Throws Refusal if a size is beyond that of other weights.
template <typename T>
std::shared_ptr<const PackedFloats<T>> pack_floats(const T* weights, int64_t inputs, int64_t outputs);

}  // namespace lingon
