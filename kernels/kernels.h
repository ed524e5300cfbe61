// The arithmetic of the operators, compiled once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lingon {

constexpr int64_t kPanel = 16;            // output columns that a product computes together
constexpr int64_t kPanels = 4;            // a part of a product that a thread computes has a multiple of so many panels
constexpr int64_t kGroup = 4;             // input columns that lie together for one output column
constexpr int64_t kMostCandidates = 256;  // twice the widest beam that a bundle may have
constexpr int64_t kMostInputs = 1 << 16;  // 255 * 63 * 65,536 is below 2^30, and what a zero point subtracts as well

constexpr int64_t kGroups = 2;   // a product reads so many groups at a time: a block of eight inputs
constexpr int kMostLevel = 255;  // of a quantised activation; the least is 0
constexpr int kMostWeight = 63;  // and the least is -63

// Bytes of a row of activations or of a column of weights.
constexpr int64_t padded_inputs(int64_t inputs) {
  return (inputs + kGroup * kGroups - 1) / (kGroup * kGroups) * (kGroup * kGroups);
}
constexpr int64_t blocks_of(int64_t inputs) { return padded_inputs(inputs) / (kGroup * kGroups); }
constexpr int64_t panels_of(int64_t outputs) { return (outputs + kPanel - 1) / kPanel; }
constexpr int64_t panel_bytes(int64_t inputs) { return padded_inputs(inputs) * kPanel; }

// The order of the weights of a block, which is eight inputs of a panel: bytes from a group of inputs to the next one,
// and from an output to the next one. The inputs of a group lie together.
struct BlockLayout {
  int64_t group, output;
};
constexpr BlockLayout kByGroups = {kGroup * kPanel, kGroup};    // (groups of inputs, 16, 4)
constexpr BlockLayout kByOutputs = {kGroup, kGroup * kGroups};  // (16, groups of inputs, 4)
constexpr int64_t kBlockBytes = kGroups * kGroup * kPanel;

// A float16 as its bits.
struct Half {
  uint16_t bits;
};

enum class NormKind { kNone, kLayer, kRms };

// A norm over the last dimension (Ba et al., 2016; Zhang and Sennrich, 2019).
struct Norm {
  NormKind kind = NormKind::kNone;
  const float* gain = nullptr;  // (columns)
  const float* bias = nullptr;  // (columns), or null
  float epsilon = 0;
};

// A row of activations is scale * (value - zero), with value in 0..kMostLevel.
struct RowScale {
  float scale;
  int32_t zero;
};

// Weights (outputs, inputs), as panels of 16 outputs: (panels, blocks of inputs, a block), zeros at the ends. A block
// has the layout of the kernels.
// With 7 bits a sum of two products fits the 16-bit sums of AVX2, so that all instruction sets give the same integers.
// Four products fit too where the weights are not all large, as in most blocks. These blocks come first.
struct Weights {
  const int8_t* panels;
  const uint16_t* order;  // (panels, blocks), which block of inputs each block of a panel is for; null: in their order
  const int32_t* fours;   // (panels), the blocks of a panel in which four products fit, if there is an order
  const int32_t* sums;    // (outputs), of the weights of each output
  const float* scale;     // (outputs)
  const float* bias;      // (outputs)
  int64_t inputs, outputs;
};

// Weights (outputs, inputs) of float or Half, as panels of 16 outputs: (panels, inputs, 16), zeros at the end.
template <typename T>
struct FloatWeights {
  const T* panels;
  const float* bias;  // (outputs)
  int64_t inputs, outputs;
};

// Rows of floats: (rows, inputs).
struct FloatRows {
  const float* values;
  int64_t count;
};

struct Rows {
  const uint8_t* values;   // (rows, padded_inputs)
  const RowScale* scales;  // (rows)
  int64_t count;
};

// The end of a product: outputs = relu?(product + bias) + residual?
struct Ending {
  float* outputs;         // (rows, outputs)
  const float* residual;  // (rows, outputs), or null
  bool relu;
};

constexpr int64_t kQueries = 4;  // queries of one sentence that attend together

// Heads over the keys and values of one sentence, which are float or Half.
template <typename T>
struct Heads {
  const T* keys;
  const T* values;
  int64_t count;                  // heads
  int64_t stride;                 // elements between the keys of two heads, and between their values
  int64_t key_stride;             // elements between two keys; if keys are transposed, between two dimensions of them
  int64_t value_stride;           // elements between two values
  int64_t length;                 // keys
  int64_t size;                   // dimensions of a head, a multiple of 8
  bool transposed;                // whether the keys are columns
  const int32_t* rows = nullptr;  // (length), how many rows further each key and its value are; null if none is
  int64_t row_stride = 0;         // elements between two rows
};

// Queries over the same keys. The heads of a query, and of its result, lie together.
struct Queries {
  const float* values;
  int64_t stride;  // floats between two queries
  int64_t count;
  float* mixed;
  int64_t mixed_stride;  // floats between two results
};

struct Kernels {
  const char* name;
  bool adds_fours;  // whether a product is faster with an order of blocks, which have the layout kByGroups
  BlockLayout layout;

  // Normalise a row and quantise it with a scale of its own; zeros up to padded_inputs. normed: scratch of `columns`.
  RowScale (*quantise)(const float* row, int64_t columns, const Norm& norm, float* normed, uint8_t* values);

  // normed = the norm of a row, which is not kNone.
  void (*normalise)(const float* row, int64_t columns, const Norm& norm, float* normed);

  void (*widen)(const Half* halves, int64_t size, float* values);
  void (*narrow)(const float* values, int64_t size, Half* halves);  // to the nearest, infinity beyond the range

  // row = scale * row + added, where added may be null.
  void (*scale_and_add)(float* row, int64_t columns, float scale, const float* added);

  // One row of an SSRU, see StepCell: present = keep * past + (1 - keep) * value, said = max(0, present) + residual.
  // gates: (2, columns), those of `keep` and the values. residual: may be null. present: may be past.
  void (*advance_cell)(const float* gates, const float* past, const float* residual, int64_t columns, float* present,
                       float* said);

  // The outputs of the panels first..last-1 for all rows.
  void (*product)(const Rows& rows, const Weights& weights, int64_t first, int64_t last, const Ending ending);

  void (*product_floats)(const FloatRows& rows, const FloatWeights<float>& weights, int64_t first, int64_t last,
                         const Ending ending);
  void (*product_halves)(const FloatRows& rows, const FloatWeights<Half>& weights, int64_t first, int64_t last,
                         const Ending ending);

  // to = the columns of `from` as rows, each with zeros up to a multiple of 8. columns: a multiple of 8.
  void (*transpose)(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to);

  // mixed = softmax(scale * query keys) values. weights: scratch of kQueries * heads * (length rounded up to 8). Of at
  // most kQueries queries it then has the weights, (heads, queries, length rounded up to 8), 0 beyond the length.
  void (*attend)(const Queries& queries, const Heads<float>& heads, float scale, float* weights);
  void (*attend_halves)(const Queries& queries, const Heads<Half>& heads, float scale, float* weights);

  // to = the logits that are allowed, minus infinity in place of the others. allowed: (size), 0 or 1.
  void (*forbid)(const float* logits, const uint8_t* allowed, int64_t size, float* to);

  // The `count` largest logits, the lower index first among equal ones, and their log-probabilities. tops: scratch of
  // size / 64 + 1.
  void (*choose)(const float* logits, int64_t size, int64_t count, float* tops, int64_t* columns, float* log_probs);
};

// The kernels of an instruction set, or the fastest ones if the name is null or empty; null if the processor does not
// have it.
const Kernels* kernels_named(const char* name);

}  // namespace lingon
