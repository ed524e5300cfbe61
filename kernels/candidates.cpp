// Candidates: the likeliest next tokens of each row.
#include <algorithm>

#include "memory.h"
#include "operators.h"

namespace lingon {
namespace {

// Inputs: logits (rows, columns), count (1) int64, and optionally pieces (columns) int64, the piece of each column, and
// allowed (sentences, columns) bool, the columns of each sentence, which has rows / sentences adjacent rows.
// Outputs: pieces (rows, count) int64, the likeliest first, and their log-probabilities (rows, count).
class Candidates : public Operator {
 public:
  Candidates(const NodeInfo&, size_t inputs) : listed_(inputs > 2) {}

  void run(const RunContext& context) const override {
    const Tensor logits = context.input(0), wanted = context.input(1);
    require(logits.rank() == 2 && wanted.size() == 1, "expects logits of two dimensions and one count");
    const int64_t rows = logits.dims[0], columns = logits.dims[1], count = *wanted.as<int64_t>();
    require(0 < count && count <= kMostCandidates && count <= columns,
            "expects a count of 1 to 256 and of the columns at most");
    const Tensor pieces = listed_ ? context.input(2) : Tensor{}, allowed = listed_ ? context.input(3) : Tensor{};
    const int64_t* piece = listed_ ? pieces.as<int64_t>() : nullptr;
    const uint8_t* permitted = listed_ ? (const uint8_t*)allowed.as<bool>() : nullptr;
    require(!listed_ || pieces.size() == columns, "expects a piece for each column");
    const int64_t sentences = listed_ && columns > 0 ? allowed.size() / columns : rows;
    require(!listed_ || allowed.size() == sentences * columns, "expects allowed columns for each sentence");
    require(sentences > 0 ? rows % sentences == 0 : rows == 0, "expects the same number of rows for each sentence");
    int64_t* ids = context.output(0, {rows, count}).as<int64_t>();
    float* log_probs = context.output(1, {rows, count}).as<float>();
    const float* values = logits.as<float>();
    context.parallel(rows, (1 << 10) / columns + 1, [&](int64_t first, int64_t last) {
      if (first == last) return;  // without rows there may be any number of columns
      float *read = scratch<float>(columns + columns / 64 + 1), *tops = read + columns;
      for (int64_t row = first; row < last; ++row) {
        const float* own = values + row * columns;
        if (permitted) {
          kernels().forbid(own, permitted + row / (rows / sentences) * columns, columns, read);
          own = read;
        }
        int64_t* found = ids + row * count;
        kernels().choose(own, columns, count, tops, found, log_probs + row * count);
        if (piece) std::transform(found, found + count, found, [&](int64_t column) { return piece[column]; });
      }
    });
  }

 private:
  bool listed_;
};

}  // namespace

std::vector<OperatorKind> candidate_kinds() {
  return {{"Candidates",
           {ElementType::kFloat, ElementType::kInt64, ElementType::kInt64, ElementType::kBool},
           {ElementType::kInt64, ElementType::kFloat},
           2,
           make<Candidates>}};
}

}  // namespace lingon
