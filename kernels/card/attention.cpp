// Attention by scaled dot products, float16. A query reads the keys of its own sentence, as far as its length.
#include "launch.h"
#include "names.h"
#include "operators.h"

namespace lingon::card {
namespace {

constexpr int64_t kBeamTile = 16;  // rows of a sentence that a program of cross-attention computes

// Attributes of all: heads, scale.
class Attention : public Operator {
 public:
  Attention(const NodeInfo& info, const char* kind)
      : kind_(kind), heads_(info.integer("heads")), scale_(info.number("scale")) {
    for (const int64_t size : {32, 64, 128}) functions_.load(attention_kernel(kind, size));
  }

 protected:
  Launch launch(int64_t size) const { return Launch(functions_[attention_kernel(kind_, size)]); }

  // The dimensions of packed rows (rows, 3 * dim): the query, key and value of each.
  static int64_t packed_dim(const Tensor& packed) {
    require_rank("packed rows", packed, 2);
    if (packed.dims[1] % 3 != 0) refuse("expects packed rows of 3 * dim, got %lld", (long long)packed.dims[1]);
    return packed.dims[1] / 3;
  }

  const char* kind_;
  int64_t heads_;
  float scale_;

 private:
  Functions functions_;
};

// One step of a decoder over its caches.
// Inputs: packed (rows, 3 * dim), the caches of keys and of values (rows, heads, capacity, size), positions (rows)
// int64, that of the new position, and a table (rows, capacity) int32: position p of row r is read from row
// r + table[r][p]. Output: (rows, dim). The new position is written into the caches, which are no outputs: in the
// middle of a graph, an output of a node cannot be in the memory of an input of the graph.
class StepAttention : public Attention {
 public:
  StepAttention(const NodeInfo& info, size_t) : Attention(info, "step") {}

  void run(const RunContext& context) const override {
    const Tensor packed = context.input(0), keys = context.input(1), values = context.input(2);
    const Tensor positions = context.input(3), table = context.input(4);
    const int64_t dim = packed_dim(packed), rows = packed.dims[0], size = head_size(dim, heads_);
    require_rank("keys", keys, 4);
    const int64_t capacity = keys.dims[2];
    require_dims("keys", keys, {rows, heads_, capacity, size});
    require_dims("values", values, keys.dims);
    require_dims("positions", positions, {rows});
    require_dims("a table", table, {rows, capacity});
    const Tensor output = context.output(0, {rows, dim});
    if (rows == 0) return;
    require_between("a capacity", capacity, 1, 1 << 16);
    launch(size)
        .pointer("packed rows", packed)
        .pointer("keys", keys)
        .pointer("values", values)
        .pointer("a table", table)
        .pointer("positions", positions)
        .pointer("the output", output)
        .integer("heads", heads_)
        .integer("a capacity", capacity)
        .number(scale_)
        .over(context, rows, heads_);
  }
};

// Inputs: query (rows, dim), keys (sentences, heads, size, width) and values (sentences, heads, width, size), lengths
// (sentences) int64, the keys of each sentence. A sentence has rows / sentences adjacent rows. Output: (rows, dim).
class CrossAttention : public Attention {
 public:
  CrossAttention(const NodeInfo& info, size_t) : Attention(info, "cross") {}

  void run(const RunContext& context) const override {
    const Tensor query = context.input(0), keys = context.input(1), values = context.input(2);
    const Tensor lengths = context.input(3);
    require_rank("a query", query, 2);
    require_rank("keys", keys, 4);
    const int64_t rows = query.dims[0], dim = query.dims[1], size = head_size(dim, heads_);
    const int64_t sentences = keys.dims[0], width = keys.dims[3];
    require_dims("keys", keys, {sentences, heads_, size, width});
    require_dims("values", values, {sentences, heads_, width, size});
    require_dims("lengths", lengths, {sentences});
    if (sentences > 0 ? rows % sentences != 0 : rows != 0)
      refuse("expects the same number of rows for each sentence, got %lld rows for %lld sentences", (long long)rows,
             (long long)sentences);
    const Tensor output = context.output(0, {rows, dim});
    if (rows == 0) return;
    require_multiple("the width of the memory", width);
    const int64_t beams = rows / sentences;
    launch(size)
        .pointer("a query", query)
        .pointer("keys", keys)
        .pointer("values", values)
        .pointer("lengths", lengths)
        .pointer("the output", output)
        .integer("heads", heads_)
        .integer("beams", beams)
        .integer("a width", width)
        .number(scale_)
        .over(context, sentences, heads_, programs_for(beams, kBeamTile));
  }
};

// Self-attention of whole sentences.
// Inputs: packed (tokens, 3 * dim), the query, key and value of every token, sentence by sentence without padding;
// tiles (n, 4) int32, each up to 16 queries of one sentence: the row of the first query, the number of queries, the
// first row of the sentence, and its length. Output: (tokens, dim).
class SelfAttention : public Attention {
 public:
  SelfAttention(const NodeInfo& info, size_t) : Attention(info, "self") {}

  void run(const RunContext& context) const override {
    const Tensor packed = context.input(0), tiles = context.input(1);
    const int64_t dim = packed_dim(packed), size = head_size(dim, heads_);
    require_rank("tiles", tiles, 2);
    require_dims("tiles", tiles, {tiles.dims[0], 4});
    const Tensor output = context.output(0, {packed.dims[0], dim});
    if (packed.dims[0] == 0 || tiles.dims[0] == 0) return;
    launch(size)
        .pointer("packed rows", packed)
        .pointer("tiles", tiles)
        .pointer("the output", output)
        .integer("heads", heads_)
        .number(scale_)
        .over(context, tiles.dims[0], heads_);
  }
};

}  // namespace

std::vector<OperatorKind> attention_kinds() {
  const ElementType half = ElementType::kFloat16, integer = ElementType::kInt64, small = ElementType::kInt32;
  return {{"StepAttention", {half, half, half, integer, small}, {half}, 5, make<StepAttention>},
          {"CrossAttention", {half, half, half, integer}, {half}, 4, make<CrossAttention>},
          {"SelfAttention", {half, small}, {half}, 2, make<SelfAttention>}};
}

}  // namespace lingon::card
