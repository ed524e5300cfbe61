// PlaceMemory: what the encoder computes of sentences, into the memory of a running batch.
#include "launch.h"
#include "operators.h"

namespace lingon::card {
namespace {

// Inputs: rows (tokens, layers * 2 * dim) float16, the keys and values of every layer; targets (n, 4) int32: a token,
// and the sentence and the position that it gets; keys (sentences, heads, size, width) and values (sentences, heads,
// width, size) of the layer, float16, which are written. Output: (1) int32 of any value, because a node needs one.
// Attributes: heads, layer, layers.
class PlaceMemory : public Operator {
 public:
  PlaceMemory(const NodeInfo& info, size_t)
      : heads_(info.integer("heads")), layer_(info.integer("layer")), layers_(info.integer("layers")) {
    require_between("layers", layers_, 1, 1024);
    require_between("a layer", layer_, 0, layers_ - 1);
    functions_.load("place_memory");
  }

  void run(const RunContext& context) const override {
    const Tensor rows = context.input(0), targets = context.input(1);
    const Tensor keys = context.input(2), values = context.input(3);
    require_rank("rows", rows, 2);
    require_rank("targets", targets, 2);
    require_rank("keys", keys, 4);
    const int64_t stride = rows.dims[1], dim = stride / (2 * layers_), size = head_size(dim, heads_);
    const int64_t sentences = keys.dims[0], width = keys.dims[3];
    require_dims("rows", rows, {rows.dims[0], layers_ * 2 * dim});
    require_dims("targets", targets, {targets.dims[0], 4});
    require_dims("keys", keys, {sentences, heads_, size, width});
    require_dims("values", values, {sentences, heads_, width, size});
    context.output(0, {1});
    if (rows.size() == 0 || targets.size() == 0 || keys.size() == 0) return;
    Launch(functions_["place_memory"])
        .pointer("rows", rows)
        .pointer("targets", targets)
        .pointer("keys", keys)
        .pointer("values", values)
        .integer("heads", heads_)
        .integer("dimensions", size)
        .integer("a width", width)
        .integer("columns", stride)
        .integer("a column", layer_ * 2 * dim)
        .over(context, targets.dims[0], heads_);
  }

 private:
  int64_t heads_, layer_, layers_;
  Functions functions_;
};

}  // namespace

std::vector<OperatorKind> memory_kinds() {
  const ElementType half = ElementType::kFloat16, small = ElementType::kInt32;
  return {{"PlaceMemory", {half, small, half, half}, {small}, 4, make<PlaceMemory>}};
}

}  // namespace lingon::card
