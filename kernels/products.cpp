// Products of rows with weights. Each row that meets 8-bit weights is quantised with a scale of its own, so that its
// result does not depend on the other rows.
#include <algorithm>
#include <list>
#include <type_traits>

#include "operators.h"
#include "weights.h"

namespace lingon {
namespace {

constexpr int64_t kGrain = 1 << 15;       // products of 8-bit integers that make a part of the work worth a helper
constexpr int64_t kFloatGrain = 1 << 13;  // products of floats that do

struct LinearRun {
  const RunContext& context;
  Tensor rows;
  Weights weights;
  Norm before;
  Ending ending;
};

void run_product(const LinearRun& run) {
  const int64_t inputs = run.weights.inputs, stride = padded_inputs(inputs);
  require(run.rows.rank() > 0 && run.rows.dims.last() == inputs, "expects as many columns as its weights have inputs");
  const int64_t count = run.rows.size() / inputs;
  const float* values = run.rows.as<float>();
  uint8_t* quantised = scratch<uint8_t>(count * stride);
  RowScale* scales = scratch<RowScale>(count);
  run.context.parallel(count, kGrain / (64 * inputs) + 1, [&](int64_t first, int64_t last) {
    float* normed = scratch<float>(inputs);
    for (int64_t row = first; row < last; ++row)
      scales[row] = kernels().quantise(values + row * inputs, inputs, run.before, normed, quantised + row * stride);
  });
  const Rows rows{quantised, scales, count};
  const int64_t panels = panels_of(run.weights.outputs), groups = (panels + kPanels - 1) / kPanels;
  const int64_t grain = kGrain / (std::max<int64_t>(count, 1) * panel_bytes(inputs) * kPanels) + 1;
  run.context.parallel(groups, grain, [&](int64_t first, int64_t last) {
    kernels().product(rows, run.weights, first * kPanels, std::min(last * kPanels, panels), run.ending);
  });
}

// Begin to read memory.
void fetch(const void* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t place = 0; place < bytes; place += kLine) __builtin_prefetch((const char*)from + place);
}

const float* vector_of(const Tensor& tensor, int64_t size) {
  require(tensor.size() == size, "has a scale, a bias or a norm of another size than its weights");
  return tensor.as<float>();
}

// Constant vectors of a node, in its own memory if they are short: the system keeps up to 2 MB of a mapped file in
// memory around each of them, which is most of a model.
class Vectors {
 public:
  const float* of(const Tensor& tensor, int64_t size) {
    const float* values = vector_of(tensor, size);
    if (size > kShort) return values;
    return kept_.emplace_back(values, values + size).data();
  }

 private:
  static constexpr int64_t kShort = 1 << 16;  // floats
  std::list<AlignedVector<float>> kept_;
};

// The norm of the rows of a product, whose gain and bias are constant inputs from `place` on.
Norm norm_of(const NodeInfo& info, size_t place, int64_t inputs, Vectors& vectors) {
  const int64_t kind = info.integer("norm");
  require(0 <= kind && kind <= 2, "expects the norm 0, 1 or 2");
  Norm norm{(NormKind)kind, nullptr, nullptr, info.number("epsilon")};
  if (kind > 0) norm.gain = vectors.of(info.constant(place), inputs);
  if (kind == 1) norm.bias = vectors.of(info.constant(place + 1), inputs);
  return norm;
}

// The norm of the rows of a product whose weights are known in a run alone: it is as wide as its gain.
struct WideNorm : Norm {
  WideNorm(const NodeInfo& info, size_t inputs, size_t place)
      : width(inputs > place ? info.constant(place).size() : 0) {
    (Norm&)*this = norm_of(info, place, width, vectors);
  }

  void check(int64_t inputs) const {
    require(0 < inputs && inputs <= kMostInputs, "takes 1 to 65,536 inputs");
    require(kind == NormKind::kNone || inputs == width, "expects rows as wide as their norm");
  }

  int64_t width;
  Vectors vectors;
};

// Inputs: rows (..., in) float, columns (in, out) int8, scale (out), bias (out), and optionally the gain (in) and the
// bias (in) of a norm of the rows, and a residual (..., out) that is added to the result.
// Attributes: norm (0 none, 1 layer, 2 RMS), epsilon, relu (whether max(0, x) follows the bias).
class Linear : public Operator {
 public:
  enum { kRows, kColumns, kScale, kBias, kGain, kResidual = 6 };

  Linear(const NodeInfo& info, size_t inputs) : has_residual_(inputs > kResidual), relu_(info.integer("relu") != 0) {
    const Tensor columns = info.constant(kColumns);
    require(columns.rank() == 2, "expects weights of two dimensions");
    packed_ = pack(columns.as<int8_t>(), columns.dims[0], columns.dims[1]);
    weights_ = {packed_->panels.data(),
                packed_->order.empty() ? nullptr : packed_->order.data(),
                packed_->fours.data(),
                packed_->sums.data(),
                vectors_.of(info.constant(kScale), packed_->outputs),
                vectors_.of(info.constant(kBias), packed_->outputs),
                packed_->inputs,
                packed_->outputs};
    norm_ = norm_of(info, kGain, packed_->inputs, vectors_);
  }

  void run(const RunContext& context) const override {
    const Tensor rows = context.input(kRows);
    const Tensor residual = has_residual_ ? context.input(kResidual) : Tensor{};
    require(rows.rank() > 0, "expects rows of at least one dimension");
    const Dims dims = rows.dims.with_last(weights_.outputs);
    require(!residual.given() || residual.dims == dims, "expects a residual of the shape of the result");
    const Tensor result = context.output(0, dims);
    const float* added = residual.given() ? residual.as<float>() : nullptr;
    run_product({context, rows, weights_, norm_, {result.as<float>(), added, relu_}});
  }

 private:
  std::shared_ptr<const PackedWeights> packed_;
  Vectors vectors_;
  Weights weights_;
  Norm norm_;
  bool has_residual_, relu_;
};

// The rows after their norm, in memory of this thread.
const float* normed_rows(const RunContext& context, const Tensor& rows, const Norm& norm) {
  const float* values = rows.as<float>();
  if (norm.kind == NormKind::kNone) return values;
  const int64_t inputs = rows.dims.last();
  float* found = scratch<float>(rows.size());
  context.parallel(rows.size() / inputs, kFloatGrain / (64 * inputs) + 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
      kernels().normalise(values + row * inputs, inputs, norm, found + row * inputs);
  });
  return found;
}

template <typename T>
void run_float_product(const RunContext& context, const FloatRows& rows, const FloatWeights<T>& weights,
                       const Ending& ending) {
  const int64_t panels = panels_of(weights.outputs), groups = (panels + kPanels - 1) / kPanels;
  const int64_t grain = kFloatGrain / (std::max<int64_t>(rows.count, 1) * weights.inputs * kPanel * kPanels) + 1;
  context.parallel(groups, grain, [&](int64_t first, int64_t last) {
    first *= kPanels, last = std::min(last * kPanels, panels);
    if constexpr (std::is_same_v<T, Half>)
      kernels().product_halves(rows, weights, first, last, ending);
    else
      kernels().product_floats(rows, weights, first, last, ending);
  });
}

// Inputs: rows (..., in) float, weights (out, in) float or float16, bias (out), and optionally the gain (in) and the
// bias (in) of a norm of the rows, and a residual (..., out), as of Linear. Attributes: those of Linear.
class FloatLinear : public Operator {
 public:
  enum { kRows, kWeights, kBias, kGain, kResidual = 5 };

  FloatLinear(const NodeInfo& info, size_t inputs)
      : has_residual_(inputs > kResidual), relu_(info.integer("relu") != 0) {
    const Tensor weights = info.constant(kWeights);
    require(weights.rank() == 2, "expects weights of two dimensions");
    outputs_ = weights.dims[0], inputs_ = weights.dims[1];
    if (weights.type == ElementType::kFloat16)
      halves_ = pack_floats(weights.as<Half>(), inputs_, outputs_);
    else
      floats_ = pack_floats(weights.as<float>(), inputs_, outputs_);
    bias_ = vectors_.of(info.constant(kBias), outputs_);
    norm_ = norm_of(info, kGain, inputs_, vectors_);
  }

  void run(const RunContext& context) const override {
    const Tensor rows = context.input(kRows);
    const Tensor residual = has_residual_ ? context.input(kResidual) : Tensor{};
    require(rows.rank() > 0, "expects rows of at least one dimension");
    require(rows.dims.last() == inputs_, "expects as many columns as its weights have inputs");
    const Dims dims = rows.dims.with_last(outputs_);
    require(!residual.given() || residual.dims == dims, "expects a residual of the shape of the result");
    const Tensor result = context.output(0, dims);
    const Ending ending{result.as<float>(), residual.given() ? residual.as<float>() : nullptr, relu_};
    const FloatRows read{normed_rows(context, rows, norm_), rows.size() / inputs_};
    if (halves_)
      run_float_product<Half>(context, read, {halves_->panels.data(), bias_, inputs_, outputs_}, ending);
    else
      run_float_product<float>(context, read, {floats_->panels.data(), bias_, inputs_, outputs_}, ending);
  }

 private:
  std::shared_ptr<const PackedFloats<float>> floats_;
  std::shared_ptr<const PackedFloats<Half>> halves_;
  Vectors vectors_;
  const float* bias_;
  int64_t inputs_, outputs_;
  Norm norm_;
  bool has_residual_, relu_;
};

// Inputs: pieces (n) int64, columns (in, out) int8, scale (out), bias (out).
// Outputs: panels (panels of n, bytes of a panel) int8, sums (n) int32, scale (n), bias (n) of these columns.
class GatherColumns : public Operator {
 public:
  GatherColumns(const NodeInfo& info, size_t) {
    const Tensor columns = info.constant(1);
    require(columns.rank() == 2, "expects weights of two dimensions");
    weights_ = rows_of_outputs(columns.as<int8_t>(), columns.dims[0], columns.dims[1]);
    scale_ = vectors_.of(info.constant(2), weights_->outputs), bias_ = vectors_.of(info.constant(3), weights_->outputs);
  }

  void run(const RunContext& context) const override {
    const Tensor pieces = context.input(0);
    const int64_t count = pieces.size(), bytes = panel_bytes(weights_->inputs);
    const int64_t* ids = pieces.as<int64_t>();
    int8_t* panels = context.output(0, {panels_of(count), bytes}).as<int8_t>();
    int32_t* sums = context.output(1, {count}).as<int32_t>();
    float *scale = context.output(2, {count}).as<float>(), *bias = context.output(3, {count}).as<float>();
    for (int64_t place = 0; place < count; ++place) {
      const int64_t id = ids[place];
      require(0 <= id && id < weights_->outputs, "got the id of a piece that the vocabulary does not have");
      sums[place] = weights_->sums[id], scale[place] = scale_[id], bias[place] = bias_[id];
    }
    context.parallel(panels_of(count), kGrain / bytes + 1, [&](int64_t first, int64_t last) {
      for (int64_t place = first * kPanel, end = std::min(last * kPanel, count); place < end; place += kPanel)
        gather(ids + place, std::min(kPanel, end - place), end - place - kPanel, panels + place / kPanel * bytes);
    });
  }

 private:
  // One panel of `count` outputs, with zeros beyond them. The weights of the `following` ones come from memory
  // meanwhile: they lie anywhere in a table that is larger than the caches.
  void gather(const int64_t* ids, int64_t count, int64_t following, int8_t* panel) const {
    const int64_t bytes = padded_inputs(weights_->inputs);
    const BlockLayout layout = kernels().layout;
    if (count < kPanel) std::fill_n(panel, bytes * kPanel, 0);
    for (int64_t place = 0; place < count; ++place) {
      if (place < following) fetch(weights_->rows.data() + ids[kPanel + place] * bytes, bytes);
      const int8_t* from = weights_->rows.data() + ids[place] * bytes;
      int8_t* to = panel + place * layout.output;
      for (int64_t block = 0; block < blocks_of(bytes); ++block, from += kGroups * kGroup, to += kBlockBytes) {
        std::copy_n(from, kGroup, to);
        std::copy_n(from + kGroup, kGroup, to + layout.group);
      }
    }
  }

  std::shared_ptr<const OutputRows> weights_;
  Vectors vectors_;
  const float *scale_, *bias_;
};

// Inputs: rows (..., in) float, the four outputs of GatherColumns, and optionally the gain (in) and the bias (in) of a
// norm of the rows. Attributes: norm and epsilon, as of Linear. Output: (..., n).
class PackedLinear : public Operator {
 public:
  PackedLinear(const NodeInfo& info, size_t inputs) : norm_(info, inputs, kGain) {}

  void run(const RunContext& context) const override {
    const Tensor rows = context.input(0), panels = context.input(1), sums = context.input(2);
    const Tensor scale = context.input(3), bias = context.input(4);
    require(rows.rank() > 0 && panels.rank() == 2, "expects rows, and panels of two dimensions");
    const int64_t inputs = rows.dims.last(), outputs = sums.size();
    norm_.check(inputs);
    require(panels.dims[0] == panels_of(outputs) && panels.dims[1] == panel_bytes(inputs),
            "expects panels for as many columns as its rows and sums have");
    const Weights weights{panels.as<int8_t>(),      nullptr, nullptr, sums.as<int32_t>(), vector_of(scale, outputs),
                          vector_of(bias, outputs), inputs,  outputs};
    const Tensor result = context.output(0, rows.dims.with_last(outputs));
    run_product({context, rows, weights, norm_, {result.as<float>(), nullptr, false}});
  }

 private:
  enum { kGain = 5 };
  WideNorm norm_;
};

// Inputs: pieces (n) int64, weights (out, in) float or float16, bias (out).
// Outputs: panels (panels of n, in * 16) float and bias (n) of these outputs, as FloatPackedLinear reads them.
class FloatGatherColumns : public Operator {
 public:
  FloatGatherColumns(const NodeInfo& info, size_t) : weights_(info.constant(1)) {
    require(weights_.rank() == 2, "expects weights of two dimensions");
    require(weights_.type == ElementType::kFloat || weights_.type == ElementType::kFloat16,
            "expects weights of floats");
    outputs_ = weights_.dims[0], inputs_ = weights_.dims[1];
    require(0 < inputs_ && inputs_ <= kMostInputs, "takes 1 to 65,536 inputs");
    bias_ = vectors_.of(info.constant(2), outputs_);
  }

  void run(const RunContext& context) const override {
    const Tensor pieces = context.input(0);
    const int64_t count = pieces.size();
    const int64_t* ids = pieces.as<int64_t>();
    float* panels = context.output(0, {panels_of(count), inputs_ * kPanel}).as<float>();
    float* bias = context.output(1, {count}).as<float>();
    for (int64_t place = 0; place < count; ++place) {
      require(0 <= ids[place] && ids[place] < outputs_, "got the id of a piece that the vocabulary does not have");
      bias[place] = bias_[ids[place]];
    }
    context.parallel(panels_of(count), kFloatGrain / (inputs_ * kPanel) + 1, [&](int64_t first, int64_t last) {
      for (int64_t panel = first; panel < last; ++panel) {
        const int64_t left = count - panel * kPanel, following = panel + 1 < last ? left - kPanel : 0;
        gather(ids + panel * kPanel, std::min(kPanel, left), following, panels + panel * inputs_ * kPanel);
      }
    });
  }

 private:
  // One panel of `count` outputs, with zeros beyond them: their weights as rows, which then become columns. The rows of
  // the next panel come from memory meanwhile: they lie anywhere in a table that is larger than the caches.
  void gather(const int64_t* ids, int64_t count, int64_t following, float* panel) const {
    const int64_t bytes = inputs_ * (weights_.type == ElementType::kFloat ? sizeof(float) : sizeof(Half));
    const int64_t stride = padded_inputs(inputs_);  // a multiple of eight, as `transpose` takes it
    float *rows = scratch<float>(2 * kPanel * stride), *columns = rows + kPanel * stride;
    if (count < kPanel) std::fill_n(rows + count * stride, (kPanel - count) * stride, 0.0f);
    for (int64_t place = 0; place < count; ++place) {
      if (place < following) fetch((const char*)weights_.data + ids[kPanel + place] * bytes, bytes);
      float* to = rows + place * stride;
      if (weights_.type == ElementType::kFloat)
        std::copy_n((const float*)weights_.data + ids[place] * inputs_, inputs_, to);
      else
        kernels().widen((const Half*)weights_.data + ids[place] * inputs_, inputs_, to);
      std::fill_n(to + inputs_, stride - inputs_, 0.0f);
    }
    if (stride == inputs_) columns = panel;
    kernels().transpose(rows, stride, kPanel, stride, columns);
    if (stride != inputs_) std::copy_n(columns, inputs_ * kPanel, panel);
  }

  Tensor weights_;
  Vectors vectors_;
  const float* bias_;
  int64_t inputs_, outputs_;
};

// Inputs: rows (..., in) float, the two outputs of FloatGatherColumns, and optionally the gain (in) and the bias (in)
// of a norm of the rows. Attributes: norm and epsilon, as of Linear. Output: (..., n).
class FloatPackedLinear : public Operator {
 public:
  FloatPackedLinear(const NodeInfo& info, size_t inputs) : norm_(info, inputs, kGain) {}

  void run(const RunContext& context) const override {
    const Tensor rows = context.input(0), panels = context.input(1), bias = context.input(2);
    require(rows.rank() > 0 && panels.rank() == 2, "expects rows, and panels of two dimensions");
    const int64_t inputs = rows.dims.last(), outputs = bias.size();
    norm_.check(inputs);
    require(panels.dims[0] == panels_of(outputs) && panels.dims[1] == inputs * kPanel,
            "expects panels for as many columns as its rows and biases have");
    const FloatWeights<float> weights{panels.as<float>(), bias.as<float>(), inputs, outputs};
    const Tensor result = context.output(0, rows.dims.with_last(outputs));
    run_float_product<float>(context, {normed_rows(context, rows, norm_), rows.size() / inputs}, weights,
                             {result.as<float>(), nullptr, false});
  }

 private:
  enum { kGain = 3 };
  WideNorm norm_;
};

}  // namespace

std::vector<OperatorKind> product_kinds() {
  const ElementType number = ElementType::kFloat, byte = ElementType::kInt8, sum = ElementType::kInt32;
  return {{"Linear", {number, byte, number, number, number, number, number}, {number}, 4, make<Linear>},
          {"FloatLinear",
           {number, ElementType::kUndefined, number, number, number, number},
           {number},
           3,
           make<FloatLinear>},
          {"GatherColumns",
           {ElementType::kInt64, byte, number, number},
           {byte, sum, number, number},
           4,
           make<GatherColumns>},
          {"PackedLinear", {number, byte, sum, number, number, number, number}, {number}, 5, make<PackedLinear>},
          {"FloatGatherColumns",
           {ElementType::kInt64, ElementType::kUndefined, number},
           {number, number},
           3,
           make<FloatGatherColumns>},
          {"FloatPackedLinear", {number, number, number, number, number}, {number}, 3, make<FloatPackedLinear>}};
}

}  // namespace lingon
