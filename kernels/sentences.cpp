// Tokens and Memory: between sentences padded to one width and the rows of all their tokens.
#include <algorithm>

#include "memory.h"
#include "operators.h"

namespace lingon {
namespace {

// The lengths of sentences, each 1 to `width`, and their sum. They are a copy, because a graph may bind an output to
// the memory of an input: what is written there must not change a length that was checked.
struct Lengths {
  std::vector<int64_t> each;
  int64_t sentences, tokens;

  static Lengths of(const Tensor& tensor, int64_t width) {
    const int64_t* given = tensor.as<int64_t>();
    Lengths found{{given, given + tensor.size()}, tensor.size(), 0};
    for (int64_t sentence = 0; sentence < found.sentences; ++sentence) {
      require(0 < found.each[sentence] && found.each[sentence] <= width, "got a length beyond the width of the batch");
      found.tokens += found.each[sentence];
    }
    return found;
  }
};

// Inputs: ids (sentences, width) int64, lengths (sentences) int64.
// Outputs: the ids and the positions of all tokens without padding, sentence by sentence, (tokens) int64 each.
class Tokens : public Operator {
 public:
  Tokens(const NodeInfo&, size_t) {}

  void run(const RunContext& context) const override {
    const Tensor ids = context.input(0), given = context.input(1);
    require(ids.rank() == 2 && ids.dims[0] == given.size(),
            "expects ids of two dimensions and a length for each sentence");
    const int64_t width = ids.dims[1];
    const Lengths lengths = Lengths::of(given, width);
    const int64_t* from = ids.as<int64_t>();
    int64_t* to = context.output(0, {lengths.tokens}).as<int64_t>();
    int64_t* positions = context.output(1, {lengths.tokens}).as<int64_t>();
    for (int64_t sentence = 0; sentence < lengths.sentences; ++sentence, from += width)
      for (int64_t place = 0; place < lengths.each[sentence]; ++place) *to++ = from[place], *positions++ = place;
  }
};

// Inputs: rows (tokens, layers * 2 * dim), the keys and values of every decoder layer; ids (sentences, width), for the
// width; lengths (sentences) int64. Attributes: heads, layer, layers, and narrowest (0): if it is not 0, the width is
// the first of narrowest, 2 * narrowest, 4 * narrowest, ... that is enough, as that of the memory of a running batch.
// Outputs: keys (sentences, heads, size, width) and values (sentences, heads, width, size) of the layer, of T (Half or
// float) and 0 as padding.
template <typename T>
class Memory : public Operator {
 public:
  Memory(const NodeInfo& info, size_t)
      : heads_(info.integer("heads")),
        layer_(info.integer("layer")),
        layers_(info.integer("layers")),
        narrowest_(info.integer("narrowest", 0)) {
    require(0 <= narrowest_ && narrowest_ <= kMost, "expects a narrowest width of at most 65,536");
    require(0 < heads_ && heads_ <= kMost && layers_ <= kMost, "takes 1 to 65,536 heads and layers");
    require(0 <= layer_ && layer_ < layers_, "expects a layer of its layers");
  }

  void run(const RunContext& context) const override {
    const Tensor rows = context.input(0), ids = context.input(1), given = context.input(2);
    require(rows.rank() == 2 && ids.rank() == 2, "expects rows and ids of two dimensions");
    require(ids.dims[1] <= kMost, "takes a width of at most 65,536");
    const int64_t stride = rows.dims[1], dim = stride / (2 * layers_), size = dim / heads_;
    require(size > 0 && stride == layers_ * 2 * heads_ * size, "expects keys and values of its layers and heads");
    require(ids.dims[0] == given.size(), "expects ids and a length for each sentence");
    const Lengths lengths = Lengths::of(given, ids.dims[1]);
    require(lengths.tokens == rows.dims[0], "expects a row for each token");
    int64_t width = narrowest_ > 0 ? narrowest_ : ids.dims[1];
    while (width < ids.dims[1]) width *= 2;
    T* keys = context.output(0, {lengths.sentences, heads_, size, width}).template as<T>();
    T* values = context.output(1, {lengths.sentences, heads_, width, size}).template as<T>();
    const float* from = rows.as<float>() + layer_ * 2 * dim;
    for (int64_t sentence = 0; sentence < lengths.sentences; ++sentence) {
      for (int64_t head = 0; head < heads_; ++head, keys += size * width, values += size * width)
        place(from + head * size, stride, dim, size, lengths.each[sentence], width, keys, values);
      from += lengths.each[sentence] * stride;
    }
  }

 private:
  static void place(const float* from, int64_t stride, int64_t dim, int64_t size, int64_t length, int64_t width,
                    T* keys, T* values) {
    T* rows = scratch<T>(length * size);  // the keys before they are columns
    for (int64_t token = 0; token < length; ++token) {
      store(from + token * stride, size, rows + token * size);
      store(from + token * stride + dim, size, values + token * size);
    }
    for (int64_t each = 0; each < size; ++each) {
      for (int64_t token = 0; token < length; ++token) keys[each * width + token] = rows[token * size + each];
      std::fill(keys + each * width + length, keys + (each + 1) * width, T{});
    }
    std::fill(values + length * size, values + width * size, T{});
  }

  static constexpr int64_t kMost = 1 << 16;
  int64_t heads_, layer_, layers_, narrowest_;
};

}  // namespace

std::vector<OperatorKind> sentence_kinds() {
  const ElementType number = ElementType::kFloat, half = ElementType::kFloat16, integer = ElementType::kInt64;
  return {{"Tokens", {integer, integer}, {integer, integer}, 2, make<Tokens>},
          {"Memory", {number, integer, integer}, {half, half}, 3, make<Memory<Half>>},
          {"Memory32", {number, integer, integer}, {number, number}, 3, make<Memory<float>>}};
}

}  // namespace lingon
