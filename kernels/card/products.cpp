// Products of rows with weights: FloatLinear, and Choose, which keeps the likeliest columns of a product.
#include <algorithm>

#include "launch.h"
#include "names.h"
#include "operators.h"

namespace lingon::card {
namespace {

constexpr NormKind kNorms[] = {NormKind::kNone, NormKind::kLayer, NormKind::kRms};

// The norm of the rows of a product: attributes norm (0 none, 1 layer, 2 RMS) and epsilon; gain and shift from the
// input `place` on.
struct Normalisation {
  NormKind kind;
  float epsilon;
  size_t place;
  bool has_gain, has_shift;

  Normalisation(const NodeInfo& info, size_t inputs, size_t place)
      : epsilon(info.number("epsilon")), place(place), has_gain(inputs > place), has_shift(inputs > place + 1) {
    const int64_t number = info.integer("norm");
    require_between("the norm", number, 0, 2);
    kind = kNorms[number];
  }

  Tensor gain(const RunContext& context, int64_t inputs) const {
    return vector_of(context, kind != NormKind::kNone, has_gain, place, "a gain", inputs);
  }
  Tensor shift(const RunContext& context, int64_t inputs) const {
    return vector_of(context, kind == NormKind::kLayer, has_shift, place + 1, "a shift", inputs);
  }

 private:
  static Tensor vector_of(const RunContext& context, bool needed, bool given, size_t place, const char* name,
                          int64_t inputs) {
    if (!needed) return {};
    const Tensor found = given ? context.input(place) : Tensor{};
    require_dims(name, found, {inputs});
    return found;
  }
};

// Rows (..., inputs) with weights (outputs, inputs) and a bias (outputs).
struct Product {
  Tensor x, weight, bias;
  int64_t rows, inputs, outputs;

  Product(const Tensor& x, const Tensor& weight, const Tensor& bias) : x(x), weight(weight), bias(bias) {
    require_rank("weights", weight, 2);
    outputs = weight.dims[0], inputs = weight.dims[1];
    require_multiple("the inputs of weights", inputs);
    require_multiple("the outputs of weights", outputs);
    require_dims("a bias", bias, {outputs});
    require(x.rank() > 0, "expects rows of at least one dimension");
    require_dims("rows", x, x.dims.with_last(inputs));
    rows = x.size() / inputs;
  }
  size_t row_bytes() const { return rows * inputs * sizeof(Half); }
};

// Enqueue the norm of the rows of a product, and return them.
void* normed_rows(const RunContext& context, const Functions& functions, const Normalisation& norm,
                  const Product& product, void* memory) {
  Launch(functions[norm_kernel(norm.kind)])
      .pointer("rows", product.x)
      .pointer("a gain", norm.gain(context, product.inputs))
      .pointer("a shift", norm.shift(context, product.inputs))
      .pointer("the normed rows", memory)
      .integer("rows", product.rows)
      .integer("inputs", product.inputs)
      .number(norm.epsilon)
      .over(context, product.rows);
  return memory;
}

// Inputs: rows (..., in), weights (out, in), bias (out), and optionally the gain (in) and the shift (in) of a norm of
// the rows, and a residual (..., out). Outputs: (..., out), and optionally the normed rows (..., in), as the product
// reads them. All are float16. Attributes: those of a norm, and relu, whether max(0, x) follows the bias.
class FloatLinear : public Operator {
 public:
  enum { kRows, kWeights, kBias, kGain, kResidual = 5 };

  FloatLinear(const NodeInfo& info, size_t inputs)
      : norm_(info, inputs, kGain),
        relu_(info.integer("relu") != 0),
        has_residual_(inputs > kResidual),
        allocator_(info) {
    Dims weights;
    std::vector<int64_t> widths{kMostNormed / 4, kMostNormed / 2, kMostNormed, kMostNormed + 1};  // one of each kernel
    if (info.constant_dims(kWeights, &weights) && weights.rank() == 2) widths = {weights[1]};
    for (const int64_t inputs : widths) {
      const bool apart = norm_.kind != NormKind::kNone && inputs > kMostNormed;
      for (const Tile& tile : kTiles)
        functions_.load(linear_kernel(apart ? NormKind::kNone : norm_.kind, inputs, tile));
      if (apart) functions_.load(norm_kernel(norm_.kind));
    }
  }

  void run(const RunContext& context) const override {
    const Product product(context.input(kRows), context.input(kWeights), context.input(kBias));
    const Tensor residual = has_residual_ ? context.input(kResidual) : Tensor{};
    const Dims dims = product.x.dims.with_last(product.outputs);
    if (residual.given()) require_dims("a residual", residual, dims);
    const Tensor gain = norm_.gain(context, product.inputs), shift = norm_.shift(context, product.inputs);
    const Tensor output = context.output(0, dims), kept = context.output(1, product.x.dims);
    require(!kept.given() || norm_.kind != NormKind::kNone, "writes normed rows only with a norm");
    if (product.rows == 0) return;
    if (norm_.kind == NormKind::kNone || product.inputs <= kMostNormed) {
      enqueue(context, product, norm_.kind, product.x.data, gain, shift, residual, output, kept);
    } else {
      const size_t bytes = kept.given() ? 0 : product.row_bytes();
      Scratch scratch(allocator_, bytes);
      void* memory = kept.given() ? kept.data : scratch.part(bytes);
      void* normed = normed_rows(context, functions_, norm_, product, memory);
      enqueue(context, product, NormKind::kNone, normed, {}, {}, residual, output, {});
    }
  }

 private:
  void enqueue(const RunContext& context, const Product& product, NormKind norm, void* rows, const Tensor& gain,
               const Tensor& shift, const Tensor& residual, const Tensor& output, const Tensor& kept) const {
    const Tile& tile = linear_tile(product.rows, product.outputs);
    Launch(functions_[linear_kernel(norm, product.inputs, tile)])
        .pointer("rows", rows)
        .pointer("weights", product.weight)
        .pointer("a bias", product.bias)
        .pointer("a gain", gain)
        .pointer("a shift", shift)
        .pointer("a residual", residual)
        .pointer("the output", output)
        .pointer("the normed rows", kept)
        .integer("rows", product.rows)
        .integer("outputs", product.outputs)
        .integer("inputs", product.inputs)
        .number(norm_.epsilon)
        .integer("relu", relu_)
        .integer("whether a residual is given", residual.given())
        .integer("whether normed rows are kept", kept.given())
        .over(context, programs_for(product.outputs, tile.columns), programs_for(product.rows, tile.rows));
  }

  Normalisation norm_;
  bool relu_, has_residual_;
  ScratchAllocator allocator_;
  Functions functions_;
};

// Inputs: rows (rows, in), weights (columns, in), bias (columns), all float16; count (1) int64 in main memory; and
// optionally the gain (in) and the shift (in) of a norm of the rows, float16. Attributes: those of a norm.
// Outputs: the likeliest columns (rows, count) int64, the likeliest first and the lower one first among equal ones,
// their log-probabilities (rows, count), and with kLogits the logits (rows, columns) float.
template <bool kLogits>
class Choose : public Operator {
 public:
  enum { kRows, kWeights, kBias, kCount, kGain };

  Choose(const NodeInfo& info, size_t inputs) : norm_(info, inputs, kGain), allocator_(info) {
    for (const int64_t count : {1, 8, 16}) {
      for (const int64_t rows : {kFewRows, kFewRows + 1}) functions_.load(choose_kernel(count, rows, kLogits));
      functions_.load(merge_kernel(count));
    }
    if (norm_.kind != NormKind::kNone) functions_.load(norm_kernel(norm_.kind));
  }

  void run(const RunContext& context) const override {
    const Product product(context.input(kRows), context.input(kWeights), context.input(kBias));
    const Tensor wanted = context.input(kCount);
    require_dims("a count", wanted, {1});
    const int64_t count = *wanted.as<int64_t>(), rows = product.rows, columns = product.outputs;
    require_rank("rows", product.x, 2);
    require_between("a count", count, 1, std::min(kMostChosen, columns));
    const Tensor ids = context.output(0, {rows, count}), log_probs = context.output(1, {rows, count});
    const Tensor logits = kLogits ? context.output(2, {rows, columns}) : Tensor{};
    if (rows == 0) return;
    const int64_t blocks = programs_for(columns, kChosenBlock);
    const size_t best_bytes = rows * blocks * list_size(count) * sizeof(int64_t);
    const size_t block_bytes = rows * blocks * sizeof(float);
    const bool normed = norm_.kind != NormKind::kNone;
    const size_t row_bytes = normed ? product.row_bytes() : 0;
    Scratch scratch(allocator_, Scratch::padded(best_bytes) + 2 * Scratch::padded(block_bytes) + row_bytes);
    void *best = scratch.part(best_bytes), *top = scratch.part(block_bytes), *total = scratch.part(block_bytes);
    void* read = product.x.data;
    if (normed) read = normed_rows(context, functions_, norm_, product, scratch.part(row_bytes));
    Launch(functions_[choose_kernel(count, rows, kLogits)])
        .pointer("rows", read)
        .pointer("weights", product.weight)
        .pointer("a bias", product.bias)
        .pointer("scratch memory", best)
        .pointer("scratch memory", top)
        .pointer("scratch memory", total)
        .pointer("logits", logits)
        .integer("rows", rows)
        .integer("outputs", columns)
        .integer("inputs", product.inputs)
        .integer("blocks", blocks)
        .over(context, blocks, programs_for(rows, tile_rows(rows)));
    Launch(functions_[merge_kernel(count)])
        .pointer("scratch memory", best)
        .pointer("scratch memory", top)
        .pointer("scratch memory", total)
        .pointer("log-probabilities", log_probs)
        .pointer("ids", ids)
        .integer("blocks", blocks)
        .integer("a count", count)
        .over(context, rows);
  }

 private:
  Normalisation norm_;
  ScratchAllocator allocator_;
  Functions functions_;
};

}  // namespace

std::vector<OperatorKind> product_kinds() {
  const ElementType half = ElementType::kFloat16, integer = ElementType::kInt64, number = ElementType::kFloat;
  const std::vector<ElementType> inputs{half, half, half, integer, half, half};
  return {{"FloatLinear", {half, half, half, half, half, half}, {half, half}, 3, make<FloatLinear>, -1, 1},
          {"Choose", inputs, {integer, number}, 4, make<Choose<false>>, Choose<false>::kCount},
          {"ChooseWithLogits", inputs, {integer, number, number}, 4, make<Choose<true>>, Choose<true>::kCount}};
}

}  // namespace lingon::card
