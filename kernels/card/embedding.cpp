// Embed: the rows of tokens, from a table of pieces and a table of positions.
#include "launch.h"
#include "operators.h"

namespace lingon::card {
namespace {

constexpr int64_t kBlock = 1024;  // dimensions that a program writes

// Inputs: ids (rows) int64; pieces (vocab, dim) float16; optionally positions (rows) int64 and a table of them (length,
// dim) float16. Attribute: scale, of the pieces. Output: (rows, dim) float16, scale * piece + position.
class Embed : public Operator {
 public:
  Embed(const NodeInfo& info, size_t inputs) : scale_(info.number("scale")), placed_(inputs > 2) {
    functions_.load("embed");
  }

  void run(const RunContext& context) const override {
    const Tensor ids = context.input(0), pieces = context.input(1);
    const Tensor positions = placed_ ? context.input(2) : Tensor{}, table = placed_ ? context.input(3) : Tensor{};
    require_rank("ids", ids, 1);
    require_rank("pieces", pieces, 2);
    const int64_t rows = ids.dims[0], dim = pieces.dims[1];
    require_multiple("the dimensions of pieces", dim);
    require(positions.given() == table.given(), "expects positions and their table, or none of them");
    if (positions.given()) {
      require_dims("positions", positions, {rows});
      require_rank("the table of positions", table, 2);
      require_dims("the table of positions", table, {table.dims[0], dim});
    }
    const Tensor output = context.output(0, {rows, dim});
    if (rows == 0) return;
    Launch(functions_["embed"])
        .pointer("ids", ids)
        .pointer("pieces", pieces)
        .pointer("positions", positions)
        .pointer("the table of positions", table)
        .pointer("the output", output)
        .integer("dimensions", dim)
        .number(scale_)
        .integer("whether positions are given", positions.given())
        .over(context, rows, programs_for(dim, kBlock));
  }

 private:
  float scale_;
  bool placed_;
  Functions functions_;
};

}  // namespace

std::vector<OperatorKind> embedding_kinds() {
  const ElementType half = ElementType::kFloat16, integer = ElementType::kInt64;
  return {{"Embed", {integer, half, integer, half}, {half}, 2, make<Embed>}};
}

}  // namespace lingon::card
