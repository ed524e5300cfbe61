// Attention of some queries to the keys and values of one sentence.
#pragma once

#include "halves.h"
#include "kernels.h"
#include "vectors.h"

namespace lingon {
namespace LINGON_ISA {
namespace {

// Where a key begins, and its value if `base` and `stride` are those of values.
template <typename T>
LINGON_INLINE const T* place_of(const T* base, int64_t stride, const Heads<T>& heads, int64_t key) {
  return base + key * stride + (heads.rows ? heads.rows[key] * heads.row_stride : 0);
}

// Scores of the keys in rows: the dot products of eight keys at a time, the last key again where there are fewer. Lane
// i of a product adds the elements i, i + 8, i + 16, ...
template <typename T>
LINGON_INLINE void scores_of_rows(const float* query, const Heads<T>& heads, const T* base, float scale,
                                  float* scores) {
  for (int64_t first = 0; first < heads.length; first += kLanes) {
    const T* keys[kLanes];
    Floats sums[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t key = first + lane < heads.length ? first + lane : heads.length - 1;
      keys[lane] = place_of(base, heads.key_stride, heads, key);
      sums[lane] = spread(0);
    }
    for (int64_t place = 0; place < heads.size; place += kLanes) {
      const Floats part = load(query + place);
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] = fused(part, load(keys[lane] + place), sums[lane]);
    }
    store(scores + first, sums_of_lanes(sums) * spread(scale));
  }
}

// Scores of Q queries in H heads for keys in columns, of which `count` may be read: all that a vector has, or fewer.
// The heads side by side, so that no sum waits for the one before.
template <int Q, int H, typename Vector, typename T>
LINGON_INLINE void scores_of_some(const Queries& queries, const Heads<T>& heads, const T* keys, int64_t count,
                                  float scale, float* scores, int64_t stride) {
  Vector sums[Q][H] = {};
  for (int64_t place = 0; place < heads.size; ++place, keys += heads.key_stride) {
    Vector read[H];
    for (int head = 0; head < H; ++head) read[head] = load_up_to<Vector>(keys + head * heads.stride, count);
    for (int query = 0; query < Q; ++query)
      for (int head = 0; head < H; ++head) {
        const float own = queries.values[query * queries.stride + head * heads.size + place];
        sums[query][head] = fused(spread<Vector>(own), read[head], sums[query][head]);
      }
  }
  for (int query = 0; query < Q; ++query)
    for (int head = 0; head < H; ++head)
      store(scores + (head * Q + query) * stride, sums[query][head] * spread<Vector>(scale));
}

// Scores of the keys in columns for the heads from `first` on. Beyond the length they are of whatever lies there;
// beyond a row nothing is read.
template <int Q, int H, typename T>
LINGON_INLINE void scores_of_columns(const Queries& queries, const Heads<T>& heads, int64_t first, float scale,
                                     float* weights, int64_t stride) {
  const Queries own{queries.values + first * heads.size, queries.stride, Q, nullptr, 0};
  const T* keys = heads.keys + first * heads.stride;
  float* scores = weights + first * Q * stride;
  int64_t key = 0;
  if constexpr (kWide > kLanes)
    for (; key + kLanes < heads.length && key + kWide <= heads.key_stride; key += kWide)
      scores_of_some<Q, H, WideFloats>(own, heads, keys + key, kWide, scale, scores + key, stride);
  for (; key < heads.length; key += kLanes) {
    const int64_t count = key + kLanes <= heads.key_stride ? (int64_t)kLanes : heads.length - key;
    scores_of_some<Q, H, Floats>(own, heads, keys + key, count, scale, scores + key, stride);
  }
}

// Eight of `length` values, and `rest` instead of those beyond.
LINGON_INLINE Floats within(Floats values, int64_t place, int64_t length, float rest) {
  if (place + kLanes <= length) return values;
  const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  return lanes < (int32_t)(length - place) ? values : spread(rest);
}

// Replace scores by weights whose sum is 1; beyond the length they are 0, up to a multiple of eight.
LINGON_INLINE void softmax(float* scores, int64_t length) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  Floats most = spread(kLeast);
  for (int64_t place = 0; place < length; place += kLanes)
    most = larger(within(load(scores + place), place, length, kLeast), most);
  const Floats largest = spread(largest_lane(most));
  Floats sum = spread(0);
  for (int64_t place = 0; place < length; place += kLanes) {
    const Floats score = within(load(scores + place), place, length, kLeast);
    const Floats each = within(exp_of_negative(score - largest), place, length, 0);  // tiny numbers take long
    store(scores + place, each);
    sum += each;
  }
  const Floats inverse = spread(1.0f / sum_lanes(sum));
  for (int64_t place = 0; place < length; place += kLanes) store(scores + place, load(scores + place) * inverse);
}

// The means of values by the weights of Q queries, for some vectors of the dimensions of a head.
template <int Q, typename Vector, int Vectors, typename T>
LINGON_INLINE void mix_some(const float* weights, int64_t stride, const Heads<T>& heads, const T* base, float* mixed,
                            int64_t mixed_stride) {
  Vector sums[Q][Vectors] = {};
  for (int64_t key = 0; key < heads.length; ++key) {
    const T* values = place_of(base, heads.value_stride, heads, key);
    for (int part = 0; part < Vectors; ++part) {
      const Vector read = load<Vector>(values + part * kSize<Vector>);
      for (int query = 0; query < Q; ++query)
        sums[query][part] = fused(spread<Vector>(weights[query * stride + key]), read, sums[query][part]);
    }
  }
  for (int query = 0; query < Q; ++query)
    for (int part = 0; part < Vectors; ++part)
      store(mixed + query * mixed_stride + part * kSize<Vector>, sums[query][part]);
}

template <int Q, typename T>
LINGON_INLINE void mix(const float* weights, int64_t stride, const Heads<T>& heads, const T* base, float* mixed,
                       int64_t mixed_stride) {
  constexpr int kVectors = Q == 1 ? 64 / kWide : 16 / kWide;  // that leaves registers for the values
  int64_t first = 0;
  for (; first + kVectors * kWide <= heads.size; first += kVectors * kWide)
    mix_some<Q, WideFloats, kVectors>(weights, stride, heads, base + first, mixed + first, mixed_stride);
  if constexpr (kVectors > 1)  // of a narrower head side by side too, so that no sum waits for the one before
    if (constexpr int kHalf = kVectors / 2; first + kHalf * kWide <= heads.size) {
      mix_some<Q, WideFloats, kHalf>(weights, stride, heads, base + first, mixed + first, mixed_stride);
      first += kHalf * kWide;
    }
  for (; first < heads.size; first += kLanes)
    mix_some<Q, Floats, 1>(weights, stride, heads, base + first, mixed + first, mixed_stride);
}

// Every head computes its scores before one computes weights from them, so that the processor works on all heads at
// once: alone, a head waits for one result after the other.
template <int Q, typename T>
void attend_some(const Queries& queries, const Heads<T>& heads, float scale, float* weights) {
  const int64_t stride = (heads.length + kLanes - 1) / kLanes * kLanes;
  int64_t head = 0;
  if (heads.transposed) {
    constexpr int kTogether = Q == 1 ? 4 : 2;
    for (; head + kTogether <= heads.count; head += kTogether)
      scores_of_columns<Q, kTogether>(queries, heads, head, scale, weights, stride);
    for (; head < heads.count; ++head) scores_of_columns<Q, 1>(queries, heads, head, scale, weights, stride);
  }
  for (; head < heads.count; ++head)
    for (int query = 0; query < Q; ++query)
      scores_of_rows(queries.values + head * heads.size + query * queries.stride, heads,
                     heads.keys + head * heads.stride, scale, weights + (head * Q + query) * stride);
  for (int64_t each = 0; each < heads.count * Q; ++each) softmax(weights + each * stride, heads.length);
  for (head = 0; head < heads.count; ++head)
    mix<Q>(weights + head * Q * stride, stride, heads, heads.values + head * heads.stride,
           queries.mixed + head * heads.size, queries.mixed_stride);
}

// The columns of eight rows of eight values become rows.
LINGON_INLINE void turn(Floats (&rows)[8]) {
  Floats pairs[8], fours[8];
  for (int row = 0; row < 8; row += 2) {
    pairs[row] = LINGON_SHUFFLE(rows[row], rows[row + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[row + 1] = LINGON_SHUFFLE(rows[row], rows[row + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int row = 0; row < 8; row += 4)
    for (int half = 0; half < 2; ++half) {
      const Floats a = pairs[row + half], b = pairs[row + half + 2];
      fours[row + 2 * half] = LINGON_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[row + 2 * half + 1] = LINGON_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int row = 0; row < 4; ++row) {
    rows[row] = LINGON_SHUFFLE(fours[row], fours[row + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[row + 4] = LINGON_SHUFFLE(fours[row], fours[row + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

void transpose(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  const int64_t to_stride = (rows + kLanes - 1) / kLanes * kLanes;
  for (int64_t row = 0; row < rows; row += kLanes)
    for (int64_t column = 0; column < columns; column += kLanes) {
      Floats read[8];
      for (int each = 0; each < 8; ++each)
        read[each] = row + each < rows ? load(from + (row + each) * stride + column) : Floats{};
      turn(read);
      for (int each = 0; each < 8; ++each) store(to + (column + each) * to_stride + row, read[each]);
    }
}

template <typename T>
void attend(const Queries& queries, const Heads<T>& heads, float scale, float* weights) {
  static_assert(kQueries == 4, "the cases below");
  Queries left = queries;
  for (int64_t first = 0; first < queries.count; first += kQueries) {
    left.values = queries.values + first * queries.stride, left.mixed = queries.mixed + first * queries.mixed_stride;
    switch (queries.count - first) {
      case 1: attend_some<1>(left, heads, scale, weights); break;
      case 2: attend_some<2>(left, heads, scale, weights); break;
      case 3: attend_some<3>(left, heads, scale, weights); break;
      default: attend_some<4>(left, heads, scale, weights);
    }
  }
}

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
