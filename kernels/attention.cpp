// Attention by scaled dot products. A query reads the keys of its own sentence, as far as its length, and no mask.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "memory.h"
#include "operators.h"

namespace lingon {
namespace {

constexpr int64_t kGrain = 1 << 12;  // multiplications that make a part of the work worth a helper
constexpr int64_t kMostLength = 1 << 16;

int64_t grain_for(int64_t length, int64_t size) { return kGrain / (2 * std::max<int64_t>(length * size, 1)) + 1; }

// Memory of a thread for the weights of a few queries.
float* weights_of(int64_t length, int64_t heads) {
  thread_local std::vector<float> memory;
  const int64_t size = kQueries * heads * ((length + 7) / 8 * 8);
  if ((int64_t)memory.size() < size) memory.resize(size);
  return memory.data();
}

struct Shape {
  int64_t count, size;  // heads, and the dimensions of each

  static Shape of(int64_t count, int64_t dim) {
    require(count > 0 && dim > 0 && dim % count == 0 && dim / count % 8 == 0,
            "expects heads of a multiple of 8 dimensions");
    return {count, dim / count};
  }
  int64_t dim() const { return count * size; }
};

// Attributes of all: heads, scale.
class Attention : public Operator {
 public:
  Attention(const NodeInfo& info, size_t) : heads_(info.integer("heads")), scale_(info.number("scale")) {}

 protected:
  int64_t heads_;
  float scale_;
};

void attend(const Queries& queries, const Heads<float>& heads, float scale, float* weights) {
  kernels().attend(queries, heads, scale, weights);
}
void attend(const Queries& queries, const Heads<Half>& heads, float scale, float* weights) {
  kernels().attend_halves(queries, heads, scale, weights);
}

// One step of a decoder over its caches, of T: Half or float.
// Inputs: packed (rows, 3 * dim), the query, key and value of the new position of each row; the caches of keys and of
// values (rows, heads, capacity, size) of T; positions (rows) int64, that of the new position; and optionally a
// table (rows, capacity) int32: position p of row r is read from row r + table[r][p], see BeamStep. Outputs: (rows,
// dim), and the caches with the new position, which may be in the memory of the old ones.
template <typename T>
class StepAttention : public Attention {
 public:
  StepAttention(const NodeInfo& info, size_t inputs) : Attention(info, inputs), has_table_(inputs > 4) {}

  void run(const RunContext& context) const override {
    const Tensor packed = context.input(0), keys = context.input(1), values = context.input(2);
    require(packed.rank() == 2 && packed.dims[1] % 3 == 0, "expects packed rows of two dimensions");
    const int64_t rows = packed.dims[0];
    const Shape heads = Shape::of(heads_, packed.dims[1] / 3);
    require(keys.rank() == 4 && keys.dims == values.dims, "expects caches of four dimensions and of one shape");
    const int64_t capacity = keys.dims[2];
    require(
        keys.dims[0] == rows && keys.dims[1] == heads.count && keys.dims[3] == heads.size && capacity <= kMostLength,
        "expects caches for its rows and heads");
    const Tensor positions = context.input(3);
    require(positions.size() == rows, "expects a position for each row");
    const int64_t* at = positions.as<int64_t>();
    int64_t longest = 0;
    for (int64_t row = 0; row < rows; ++row) {
      require(0 <= at[row] && at[row] < capacity, "got a position beyond the capacity of the cache");
      longest = std::max(longest, at[row] + 1);
    }
    const Tensor table = has_table_ ? context.input(4) : Tensor{};
    if (table.given()) check_table(table, at, rows, capacity);
    const int32_t* further = table.given() ? table.as<int32_t>() : nullptr;
    float* mixed = context.output(0, {rows, heads.dim()}).as<float>();
    T* key = in_place(keys, context.output(1, keys.dims));
    T* value = in_place(values, context.output(2, keys.dims));
    const float* query = packed.as<float>();
    const int64_t row_stride = heads.count * capacity * heads.size;
    for (int64_t each = 0; each < rows * heads.count; ++each) {  // before any row reads another one
      const int64_t row = each / heads.count, head = each % heads.count;
      const float* own = query + row * 3 * heads.dim() + head * heads.size;
      const int64_t added = each * capacity * heads.size + at[row] * heads.size;
      store(own + heads.dim(), heads.size, key + added);
      store(own + 2 * heads.dim(), heads.size, value + added);
    }
    context.parallel(rows, grain_for(longest, heads.dim()), [&](int64_t first, int64_t last) {
      float* weights = weights_of(longest, heads.count);
      for (int64_t row = first; row < last; ++row) {
        Heads<T> read{key + row * row_stride, value + row * row_stride, heads.count, capacity * heads.size,
                      heads.size,             heads.size,               at[row] + 1, heads.size,
                      false};
        if (further) read.rows = further + row * capacity, read.row_stride = row_stride;
        const Queries own{query + row * 3 * heads.dim(), 0, 1, mixed + row * heads.dim(), 0};
        attend(own, read, scale_, weights);
      }
    });
  }

 private:
  static void check_table(const Tensor& table, const int64_t* at, int64_t rows, int64_t capacity) {
    require(table.dims == Dims({rows, capacity}), "expects a table for its rows and the capacity of its caches");
    const int32_t* further = table.as<int32_t>();
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t position = 0; position <= at[row]; ++position) {
        const int64_t other = row + further[row * capacity + position];
        require(0 <= other && other < rows, "got a table that points beyond its rows");
      }
  }

  static T* in_place(const Tensor& past, const Tensor& present) {
    if (past.data != present.data && past.size() > 0)
      std::memcpy(present.data, past.as<T>(), past.size() * sizeof(T));
    return present.as<T>();
  }

  bool has_table_;
};

// Write the means of the weights of some heads, (queries, width), 0 beyond the length of the sentence.
// weights: what `attend` left of queries that attended together, see kernels.h.
void write_means(const float* weights, const std::vector<int64_t>& heads, int64_t queries, int64_t length,
                 int64_t width, float* means) {
  const int64_t stride = (length + 7) / 8 * 8;
  for (int64_t query = 0; query < queries; ++query, means += width) {
    std::copy_n(weights + (heads[0] * queries + query) * stride, length, means);
    for (size_t place = 1; place < heads.size(); ++place) {
      const float* own = weights + (heads[place] * queries + query) * stride;
      for (int64_t key = 0; key < length; ++key) means[key] += own[key];
    }
    for (int64_t key = 0; key < length; ++key) means[key] /= (float)heads.size();
    std::fill(means + length, means + width, 0.0f);
  }
}

// Inputs: query (rows, dim), keys (sentences, heads, size, width) and values (sentences, heads, width, size) both
// float16 or both float, lengths (sentences) int64, the keys of each sentence; and optionally constant heads (any
// number) int64. A sentence has rows / sentences adjacent rows. Outputs: (rows, dim); and with heads the mean of their
// weights, (rows, width) float.
class CrossAttention : public Attention {
 public:
  CrossAttention(const NodeInfo& info, size_t inputs) : Attention(info, inputs) {
    if (inputs < 5) return;
    const Tensor given = info.constant(4);
    const int64_t* head = given.as<int64_t>();
    require(given.size() > 0, "expects a head at least");
    for (int64_t place = 0; place < given.size(); ++place)
      require(0 <= head[place] && head[place] < heads_, "got a head that it does not have");
    aligned_.assign(head, head + given.size());
  }

  void run(const RunContext& context) const override {
    const Tensor query = context.input(0), keys = context.input(1), values = context.input(2);
    require(query.rank() == 2 && keys.rank() == 4 && values.rank() == 4,
            "expects a query of two dimensions, others of four");
    const int64_t rows = query.dims[0], sentences = keys.dims[0], width = keys.dims[3];
    const Shape heads = Shape::of(heads_, query.dims[1]);
    require(keys.dims[1] == heads.count && keys.dims[2] == heads.size && width <= kMostLength,
            "expects keys for its heads");
    require(values.dims == Dims({sentences, heads.count, width, heads.size}), "expects values like its keys");
    require(sentences > 0 ? rows % sentences == 0 : rows == 0, "expects the same number of rows for each sentence");
    const Tensor lengths = context.input(3);
    require(lengths.size() == sentences, "expects a length for each sentence");
    const int64_t* length = lengths.as<int64_t>();
    for (int64_t sentence = 0; sentence < sentences; ++sentence)
      require(0 < length[sentence] && length[sentence] <= width, "got a length beyond the width of the memory");
    const float* own = query.as<float>();
    float* mixed = context.output(0, {rows, heads.dim()}).as<float>();
    float* means = nullptr;
    if (!aligned_.empty()) {  // a node that asks for nothing pays for nothing
      const Tensor found = context.output(1, {rows, width});
      if (found.given()) means = found.as<float>();
    }
    const int64_t each = sentences > 0 ? rows / sentences : 0;
    const auto cross = [&](const auto* key, const auto* value) {
      context.parallel(sentences, grain_for(width, each * heads.dim()), [&](int64_t first, int64_t last) {
        for (int64_t sentence = first; sentence < last; ++sentence) {
          const int64_t begin = sentence * heads.dim() * width, place = sentence * each * heads.dim();
          const Queries read{own + place, heads.dim(), each, mixed + place, heads.dim()};
          const Heads<std::decay_t<decltype(*key)>> keys_and_values{
              key + begin, value + begin, heads.count, width * heads.size, width, heads.size, length[sentence],
              heads.size,  true};
          float* weights = weights_of(width, heads.count);
          if (means)
            attend_and_align(read, keys_and_values, weights, width, means + sentence * each * width);
          else
            attend(read, keys_and_values, scale_, weights);
        }
      });
    };
    if (keys.type == ElementType::kFloat16)
      cross(keys.as<Half>(), values.as<Half>());
    else
      cross(keys.as<float>(), values.as<float>());
  }

 private:
  // The queries of one sentence, as many at a time as leave their weights behind. means: those of the first query.
  template <typename T>
  void attend_and_align(Queries left, const Heads<T>& heads, float* weights, int64_t width, float* means) const {
    for (int64_t rest = left.count; rest > 0; rest -= kQueries, means += kQueries * width) {
      left.count = std::min(rest, kQueries);
      attend(left, heads, scale_, weights);
      write_means(weights, aligned_, left.count, heads.length, width, means);
      left.values += kQueries * left.stride, left.mixed += kQueries * left.mixed_stride;
    }
  }

  std::vector<int64_t> aligned_;  // heads
};

// Self-attention of whole sentences.
// Inputs: packed (tokens, 3 * dim), the query, key and value of every token, sentence by sentence without padding, or
// (sentences * width, 3 * dim) with padding; lengths (sentences) int64. Attribute: causal (0), whether a token sees
// only those up to itself, with the bits of StepAttention; narrow (1), whether its keys and values are then those of
// caches of float16. Output: (tokens, dim), 0 where there is padding.
class SelfAttention : public Attention {
 public:
  SelfAttention(const NodeInfo& info, size_t inputs)
      : Attention(info, inputs),
        causal_(info.integer("causal", 0) != 0),
        narrow_(info.integer("narrow", 1) != 0) {}

  void run(const RunContext& context) const override {
    const Tensor packed = context.input(0), lengths = context.input(1);
    require(packed.rank() == 2 && packed.dims[1] % 3 == 0, "expects packed rows of two dimensions");
    const Shape heads = Shape::of(heads_, packed.dims[1] / 3);
    const int64_t sentences = lengths.size(), rows = packed.dims[0];
    const int64_t* length = lengths.as<int64_t>();
    int64_t tokens = 0, longest = 0;
    for (int64_t sentence = 0; sentence < sentences; ++sentence) {
      require(0 < length[sentence] && length[sentence] <= kMostLength, "takes sentences of 1 to 65,536 tokens");
      tokens += length[sentence];
      longest = std::max(longest, length[sentence]);
    }
    const bool padded = tokens != rows;
    require(!padded || (sentences > 0 && rows % sentences == 0 && longest <= rows / sentences),
            "expects a row for each token");
    std::vector<int64_t> begins(sentences + 1, 0);
    for (int64_t sentence = 0; sentence < sentences; ++sentence)
      begins[sentence + 1] = begins[sentence] + (padded ? rows / sentences : length[sentence]);
    float* mixed = context.output(0, {rows, heads.dim()}).as<float>();
    if (padded) std::fill_n(mixed, rows * heads.dim(), 0.0f);
    const float* values = packed.as<float>();
    const int64_t grain = grain_for(longest * longest, heads.size);
    context.parallel(sentences * heads.count, grain, [&](int64_t first, int64_t last) {
      for (int64_t each = first; each < last; ++each) {
        const int64_t sentence = each / heads.count, head = each % heads.count, begin = begins[sentence];
        const float* own = values + begin * 3 * heads.dim() + head * heads.size;
        float* written = mixed + begin * heads.dim() + head * heads.size;
        if (causal_ && narrow_)
          attend_to_past<Half>(own, heads, length[sentence], written);
        else if (causal_)
          attend_to_past<float>(own, heads, length[sentence], written);
        else
          attend_to_all(own, heads, length[sentence], written);
      }
    });
  }

 private:
  // One head of one sentence: values and mixed begin with its first token.
  void attend_to_all(const float* values, const Shape& heads, int64_t length, float* mixed) const {
    const int64_t stride = 3 * heads.dim(), columns = (length + 7) / 8 * 8;
    float* keys = scratch<float>(heads.size * columns);  // (size, columns): eight keys lie together
    kernels().transpose(values + heads.dim(), stride, length, heads.size, keys);
    const Heads<float> read{keys, values + 2 * heads.dim(), 1, 0, columns, stride, length, heads.size, true};
    kernels().attend({values, stride, length, mixed, heads.dim()}, read, scale_, weights_of(length, 1));
  }

  // A query reads the keys up to its own, which are stored as T first, as in the cache of a decoder.
  template <typename T>
  void attend_to_past(const float* values, const Shape& heads, int64_t length, float* mixed) const {
    const int64_t stride = 3 * heads.dim(), size = heads.size;
    T *keys = scratch<T>(2 * length * size), *past = keys + length * size;
    float* weights = weights_of(length, 1);
    for (int64_t query = 0; query < length; ++query) {
      const float* own = values + query * stride;
      store(own + heads.dim(), size, keys + query * size);
      store(own + 2 * heads.dim(), size, past + query * size);
      const Heads<T> read{keys, past, 1, 0, size, size, query + 1, size, false};
      attend({own, 0, 1, mixed + query * heads.dim(), 0}, read, scale_, weights);
    }
  }

  bool causal_, narrow_;
};

}  // namespace

std::vector<OperatorKind> attention_kinds() {
  const ElementType number = ElementType::kFloat, half = ElementType::kFloat16, integer = ElementType::kInt64;
  const ElementType any = ElementType::kUndefined;
  return {{"StepAttention",
           {number, half, half, integer, ElementType::kInt32},
           {number, half, half},
           4,
           make<StepAttention<Half>>},
          {"StepAttention32",
           {number, number, number, integer, ElementType::kInt32},
           {number, number, number},
           4,
           make<StepAttention<float>>},
          {"CrossAttention", {number, any, any, integer, integer}, {number, number}, 4, make<CrossAttention>, -1, 1},
          {"SelfAttention", {number, integer}, {number}, 2, make<SelfAttention>}};
}

}  // namespace lingon
