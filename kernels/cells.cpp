// StepCell: the recurrent cell of a decoder layer after one more position.
#include "operators.h"

namespace lingon {
namespace {

// The SSRU (Kim et al., 2019): cell = keep * past + (1 - keep) * value with keep = sigmoid(gate), and it says
// max(0, cell).
// Inputs: gates (rows, 2 * dim) float, for each row the gates and then the values; the cell before (rows, dim); and
// optionally a residual (rows, dim). Outputs: max(0, cell) + residual, and the cell, (rows, dim) each. A graph may bind
// the new cell to the memory of the one before.
class StepCell : public Operator {
 public:
  StepCell(const NodeInfo&, size_t inputs) : has_residual_(inputs > kResidual) {}

  void run(const RunContext& context) const override {
    const Tensor gates = context.input(kGates), past = context.input(kPast);
    const Tensor residual = has_residual_ ? context.input(kResidual) : Tensor{};
    require(gates.rank() == 2 && past.rank() == 2, "expects gates and cells of two dimensions");
    const int64_t rows = past.dims[0], dim = past.dims[1];
    require(gates.dims[0] == rows && dim <= kMostInputs && gates.dims[1] == 2 * dim,
            "expects a gate and a value for each element of its cells, of which a row has at most 65,536");
    require(!residual.given() || residual.dims == past.dims, "expects a residual of the shape of its cells");
    const float *given = gates.as<float>(), *before = past.as<float>();
    const float* added = residual.given() ? residual.as<float>() : nullptr;
    float* said = context.output(0, past.dims).as<float>();
    float* present = context.output(1, past.dims).as<float>();
    context.parallel(rows, kGrain / (dim + 1) + 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const int64_t place = row * dim;
        kernels().advance_cell(given + 2 * place, before + place, added ? added + place : nullptr, dim, present + place,
                               said + place);
      }
    });
  }

 private:
  enum { kGates, kPast, kResidual };
  static constexpr int64_t kGrain = 1 << 13;  // elements that make a part of the work worth a helper
  bool has_residual_;
};

}  // namespace

std::vector<OperatorKind> cell_kinds() {
  const ElementType number = ElementType::kFloat;
  return {{"StepCell", {number, number, number}, {number, number}, 2, make<StepCell>}};
}

}  // namespace lingon
