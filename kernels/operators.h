// The operators of the domain `lingon`, as ONNX nodes see them.
#pragma once

#include <memory>

#include "kernels.h"
#include "session.h"

namespace lingon {

// The kernel of a node.
class Operator {
 public:
  virtual ~Operator() = default;
  virtual void run(const RunContext& context) const = 0;
};

// A kind of node: what ONNX Runtime must know of it, and how its kernel is made.
struct OperatorKind {
  const char* name;
  std::vector<ElementType> inputs, outputs;  // kUndefined is any type
  size_t required_inputs;                    // the others are optional
  std::unique_ptr<Operator> (*make)(const NodeInfo& info, size_t inputs);
  int host_input = -1;          // an input that is in main memory even on a card; -1: none
  size_t optional_outputs = 0;  // the last ones, which a node may not have
};

template <typename T>
std::unique_ptr<Operator> make(const NodeInfo& info, size_t inputs) {
  return std::make_unique<T>(info, inputs);
}

std::vector<OperatorKind> attention_kinds();  // StepAttention, StepAttention32, CrossAttention, SelfAttention
std::vector<OperatorKind> product_kinds();    // Linear, GatherColumns, PackedLinear, and the same of floats
std::vector<OperatorKind> embedding_kinds();  // Embed
std::vector<OperatorKind> sentence_kinds();   // Tokens, Memory, Memory32
std::vector<OperatorKind> candidate_kinds();  // Candidates
std::vector<OperatorKind> beam_kinds();       // BeamStep
std::vector<OperatorKind> cell_kinds();       // StepCell

// The instruction set that all operators use, chosen when the library is registered first.
const Kernels& kernels();

// Store values as they are, or as the nearest float16.
inline void store(const float* values, int64_t size, float* to) { std::copy_n(values, size, to); }
inline void store(const float* values, int64_t size, Half* to) { kernels().narrow(values, size, to); }

}  // namespace lingon
