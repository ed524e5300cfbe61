// The arithmetic of kernels.h for one instruction set, LINGON_ISA. All functions compute a row without the other rows.
//
// It uses no containers: their code, compiled for a new processor, could be linked into functions for all processors.
#pragma once

#include "kernels.h"
#include "tiles.h"
#include "vectors.h"

namespace lingon {
namespace LINGON_ISA {
namespace {

// Call use(values, place, count) for eight elements at a time; the last ones may be fewer, filled up with `rest`.
template <typename Use>
LINGON_INLINE void each_eight(const float* values, int64_t size, float rest, Use use) {
  int64_t place = 0;
  for (; place + kLanes <= size; place += kLanes) use(load(values + place), place, kLanes);
  if (place < size) use(load_part(values + place, size - place, rest), place, size - place);
}

LINGON_INLINE Floats load_up_to(const float* from, int64_t count) {
  return count == kLanes ? load(from) : load_part(from, count, 0);
}

LINGON_INLINE void store_up_to(float* to, Floats values, int64_t count) {
  if (count == kLanes)
    store(to, values);
  else
    store_part(to, values, count);
}

// What a norm subtracts from each value, and by what it multiplies the rest.
struct Moments {
  float mean, inverse;
};

LINGON_INLINE Moments moments(const float* row, int64_t columns, const Norm& norm) {
  float mean = 0;
  if (norm.kind == NormKind::kLayer) {
    Floats sum = spread(0);
    each_eight(row, columns, 0, [&](Floats values, int64_t, int64_t) { sum += values; });
    mean = sum_lanes(sum) / columns;
  }
  Floats squares = spread(0);
  each_eight(row, columns, mean, [&](Floats values, int64_t, int64_t) {
    const Floats difference = values - spread(mean);
    squares += difference * difference;
  });
  return {mean, 1.0f / std::sqrt(sum_lanes(squares) / columns + norm.epsilon)};
}

// Copies of norms and moments are passed: bytes that are written might else lie in them, for all that the compiler
// knows.
template <bool Normed>
LINGON_INLINE Floats normalised(Floats values, Moments found, Norm norm, int64_t place, int64_t count) {
  if (!Normed) return values;
  values = (values - spread(found.mean)) * spread(found.inverse) * load_up_to(norm.gain + place, count);
  return norm.bias ? values + load_up_to(norm.bias + place, count) : values;
}

// Shifted to the place of a float32, a half is too small by 2^112; that factor also makes denormals of both types
// right.
void widen(const uint16_t* halves, int64_t size, float* values) {
  for (int64_t place = 0; place < size; ++place) {
    const uint32_t half = halves[place], magnitude = (half & 0x7fff) << 13;
    uint32_t bits;
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
    std::memcpy(&bits, &value, sizeof bits);
    if ((half & 0x7c00) == 0x7c00) bits |= 0x7f800000;  // infinity and NaN
    bits |= (half & 0x8000) << 16;
    std::memcpy(values + place, &bits, sizeof bits);
  }
}

void scale_and_add(float* row, int64_t columns, float scale, const float* added) {
  each_eight(row, columns, 0, [&](Floats values, int64_t place, int64_t count) {
    values *= spread(scale);
    if (added) values += load_up_to(added + place, count);
    store_up_to(row + place, values, count);
  });
}

typedef uint8_t Bytes __attribute__((vector_size(32)));

// Store values 0..kMostLevel as bytes: the lowest byte of each integer.
LINGON_INLINE void store_bytes(uint8_t* to, Floats values, int64_t count) {
  const Bytes all = (Bytes) __builtin_convertvector(values, Ints);
  const auto bytes = LINGON_SHUFFLE(all, all, 0, 4, 8, 12, 16, 20, 24, 28);
  std::memcpy(to, &bytes, count == kLanes ? sizeof bytes : (size_t)count);
}

// Lanes beyond the end of a row are 0: their gain and bias are, or without a norm they themselves.
template <bool Normed>
LINGON_INLINE RowScale quantise_as(const float* row, int64_t columns, const Norm norm, uint8_t* values) {
  const Moments found = Normed ? moments(row, columns, norm) : Moments{0, 1};
  Floats low = spread(0), high = spread(0), broken = spread(0);  // the range contains 0
  each_eight(row, columns, 0, [&](Floats read, int64_t place, int64_t count) {
    const Floats each = normalised<Normed>(read, found, norm, place, count);
    low = smaller(each, low), high = larger(each, high);
    broken += each - each;  // NaN for NaN and infinity
  });
  const float least = smallest_lane(low), range = largest_lane(high) - least;
  const float scale = range > 1e-30f ? range / kMostLevel : 1, inverse = 1 / scale;
  const Floats zero = spread(kRounding) - (spread(least * inverse) + spread(kRounding));
  each_eight(row, columns, 0, [&](Floats read, int64_t place, int64_t count) {
    const Floats level = normalised<Normed>(read, found, norm, place, count) * spread(inverse) + spread(kRounding);
    const Floats moved = level - spread(kRounding) + zero;
    store_bytes(values + place, smaller(moved, spread(kMostLevel)), count);  // two roundings may add up to one more
  });
  std::memset(values + columns, 0, padded_inputs(columns) - columns);
  const bool finite = sum_lanes(broken) == 0 && range <= std::numeric_limits<float>::max();
  // All results of a row with NaN are NaN, so that the row alone fails.
  return {finite ? scale : std::numeric_limits<float>::quiet_NaN(), finite ? (int32_t)zero[0] : 0};
}

RowScale quantise(const float* row, int64_t columns, const Norm& norm, uint8_t* values) {
  if (norm.kind == NormKind::kNone) return quantise_as<false>(row, columns, norm, values);
  return quantise_as<true>(row, columns, norm, values);
}

// Eight outputs of a row from their sums, or fewer at the end of a row.
LINGON_INLINE void end_outputs(const int32_t* sums, RowScale row, const Weights& weights, int64_t output, int64_t count,
                               const Ending& ending, int64_t place) {
  Ints sum, of_weights{};
  std::memcpy(&sum, sums, sizeof sum);
  if (count == kLanes)
    std::memcpy(&of_weights, weights.sums + output, sizeof of_weights);
  else
    std::memcpy(&of_weights, weights.sums + output, count * sizeof(int32_t));
  sum -= (row.zero - kOffset) * of_weights;
  const Floats scale = spread(row.scale) * load_up_to(weights.scale + output, count);
  Floats found = __builtin_convertvector(sum, Floats) * scale + load_up_to(weights.bias + output, count);
  if (ending.relu) found = found < spread(0) ? spread(0) : found;  // NaN stays
  if (ending.residual) found += load_up_to(ending.residual + place, count);
  store_up_to(ending.outputs + place, found, count);
}

LINGON_INLINE void end_panel(const int32_t* sums, RowScale row, const Weights& weights, int64_t output,
                             const Ending& ending, int64_t place) {
  const int64_t left = weights.outputs - output;
  if (left >= kPanel) {
    end_outputs(sums, row, weights, output, kLanes, ending, place);
    end_outputs(sums + kLanes, row, weights, output + kLanes, kLanes, ending, place + kLanes);
  } else {
    end_outputs(sums, row, weights, output, left < kLanes ? left : kLanes, ending, place);
    if (left > kLanes) end_outputs(sums + kLanes, row, weights, output + kLanes, left - kLanes, ending, place + kLanes);
  }
}

void product(const Rows& rows, const Weights& weights, int64_t first, int64_t last, const Ending& ending) {
  const int64_t stride = padded_inputs(weights.inputs), groups = stride / kGroup;
  int32_t sums[kTileRows * kPanel];
  const int64_t tiles = (rows.count + kTileRows - 1) / kTileRows;
  for (int64_t panel = first; panel < last; ++panel) {
    const int8_t* columns = weights.panels + panel * stride * kPanel;
    const Order order = weights.order ? Order{weights.order + panel * groups / kGroups, weights.fours[panel]} : Order{};
    for (int64_t each = 0; each < tiles; ++each) {  // of nearly equal size: small ones take more time for a row
      const int64_t begin = rows.count * each / tiles, count = rows.count * (each + 1) / tiles - begin;
      tile_of<kTileRows>(count, rows.values + begin * stride, stride, columns, groups, order, sums);
      for (int64_t row = 0; row < count; ++row) {
        const int64_t place = (begin + row) * weights.outputs + panel * kPanel;
        end_panel(sums + row * kPanel, rows.scales[begin + row], weights, panel * kPanel, ending, place);
      }
    }
  }
}

// Where a key begins, and its value if `base` and `stride` are those of values.
LINGON_INLINE const float* place_of(const float* base, int64_t stride, const Head& head, int64_t key) {
  return base + key * stride + (head.rows ? head.rows[key] * head.row_stride : 0);
}

// Scores of the keys in rows: the dot products of eight keys at a time, the last key again where there are fewer.
LINGON_INLINE void scores_of_rows(const float* query, const Head& head, float scale, float* scores) {
  for (int64_t first = 0; first < head.length; first += kLanes) {
    const float* keys[kLanes];
    Floats sums[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t key = first + lane < head.length ? first + lane : head.length - 1;
      keys[lane] = place_of(head.keys, head.key_stride, head, key);
      sums[lane] = spread(0);
    }
    for (int64_t place = 0; place < head.size; place += kLanes) {
      const Floats part = load(query + place);
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += part * load(keys[lane] + place);
    }
    store(scores + first, sums_of_lanes(sums) * spread(scale));
  }
}

// Scores of the keys in columns. Beyond the length they are of whatever lies there; beyond a row nothing is read.
LINGON_INLINE void scores_of_columns(const float* query, const Head& head, float scale, float* scores) {
  int64_t key = 0;
  for (; key < head.length && key + 2 * kLanes <= head.key_stride; key += 2 * kLanes) {
    const float* keys = head.keys + key;
    Floats sum = spread(0), further = spread(0);
    for (int64_t place = 0; place < head.size; ++place, keys += head.key_stride) {
      sum += spread(query[place]) * load(keys);
      further += spread(query[place]) * load(keys + kLanes);
    }
    store(scores + key, sum * spread(scale));
    if (key + kLanes < head.length) store(scores + key + kLanes, further * spread(scale));
  }
  for (; key < head.length; key += kLanes) {
    const int64_t count = key + kLanes <= head.key_stride ? (int64_t)kLanes : head.length - key;
    const float* keys = head.keys + key;
    Floats sum = spread(0);
    for (int64_t place = 0; place < head.size; ++place, keys += head.key_stride)
      sum += spread(query[place]) * load_up_to(keys, count);
    store(scores + key, sum * spread(scale));
  }
}

// Replace scores by weights whose sum is 1; beyond the length they are 0, up to a multiple of eight.
LINGON_INLINE void softmax(float* scores, int64_t length) {
  const int64_t whole = (length + kLanes - 1) / kLanes * kLanes;
  for (int64_t place = length; place < whole; ++place) scores[place] = -std::numeric_limits<float>::infinity();
  Floats most = load(scores);
  for (int64_t place = kLanes; place < whole; place += kLanes) most = larger(load(scores + place), most);
  const Floats largest = spread(largest_lane(most));
  Floats sum = spread(0);
  for (int64_t place = 0; place < whole; place += kLanes) {
    const Floats each = exp_of_negative(load(scores + place) - largest);
    store(scores + place, each);
    sum += each;
  }
  const Floats inverse = spread(1.0f / sum_lanes(sum));
  for (int64_t place = 0; place < whole; place += kLanes) store(scores + place, load(scores + place) * inverse);
}

template <int Parts>
LINGON_INLINE void mix(const float* weights, const Head& head, int64_t first, float* mixed) {
  Floats sums[Parts];
  for (int part = 0; part < Parts; ++part) sums[part] = spread(0);
  for (int64_t key = 0; key < head.length; ++key) {
    const float* values = place_of(head.values, head.value_stride, head, key) + first;
    for (int part = 0; part < Parts; ++part) sums[part] += spread(weights[key]) * load(values + part * kLanes);
  }
  for (int part = 0; part < Parts; ++part) store(mixed + first + part * kLanes, sums[part]);
}

void attend(const float* query, const Head& head, float scale, bool transposed, float* weights, float* mixed) {
  if (transposed)
    scores_of_columns(query, head, scale, weights);
  else
    scores_of_rows(query, head, scale, weights);
  softmax(weights, head.length);
  int64_t first = 0;
  for (; first + 8 * kLanes <= head.size; first += 8 * kLanes) mix<8>(weights, head, first, mixed);
  for (; first + 4 * kLanes <= head.size; first += 4 * kLanes) mix<4>(weights, head, first, mixed);
  for (; first < head.size; first += kLanes) mix<1>(weights, head, first, mixed);
}

constexpr int64_t kBlock = 64;  // logits that are compared together at first
constexpr float kForbidden = -std::numeric_limits<float>::infinity();

LINGON_INLINE float allowed_or_none(const float* logits, const bool* allowed, int64_t place) {
  return !allowed || allowed[place] ? logits[place] : kForbidden;
}

// The largest logit of each block into tops; returns the largest of all.
LINGON_INLINE float find_tops(const float* logits, const bool* allowed, int64_t size, float* tops) {
  float largest = kForbidden;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t count = size - begin < kBlock ? size - begin : kBlock;
    float top = kForbidden;
    if (allowed) {
      for (int64_t place = begin; place < begin + count; ++place) {
        const float logit = allowed_or_none(logits, allowed, place);
        top = logit > top ? logit : top;
      }
    } else {
      Floats most = spread(kForbidden);
      each_eight(logits + begin, count, kForbidden, [&](Floats each, int64_t, int64_t) { most = larger(each, most); });
      top = largest_lane(most);
    }
    tops[begin / kBlock] = top;
    largest = top > largest ? top : largest;
  }
  return largest;
}

// The sum over all allowed logits. Lane i of two sums adds the elements i and i + 8 of every sixteen.
LINGON_INLINE float sum_of_exps(const float* logits, const bool* allowed, int64_t size, float largest) {
  Floats sums[2] = {spread(0), spread(0)};
  const auto add = [&](Floats values, int64_t place, int64_t count) {
    if (allowed)
      for (int64_t lane = 0; lane < count; ++lane) values[lane] = allowed[place + lane] ? values[lane] : kForbidden;
    sums[place / kLanes % 2] += exp_of_negative(values - spread(largest));
  };
  int64_t place = 0;
  for (; place + 2 * kLanes <= size; place += 2 * kLanes) {
    add(load(logits + place), place, kLanes);
    add(load(logits + place + kLanes), place + kLanes, kLanes);
  }
  each_eight(logits + place, size - place, kForbidden,
             [&](Floats values, int64_t more, int64_t count) { add(values, place + more, count); });
  return sum_lanes(sums[0] + sums[1]);
}

// Put a value into the `count` largest ones, which are in order. An equal one that came first stays before it.
LINGON_INLINE void insert(float value, int64_t column, int64_t count, float* values, int64_t* columns) {
  int64_t place = count - 1;
  if (!(value > values[place])) return;
  for (; place > 0 && value > values[place - 1]; --place) {
    values[place] = values[place - 1];
    columns[place] = columns[place - 1];
  }
  values[place] = value;
  columns[place] = column;
}

void choose(const float* logits, const bool* allowed, int64_t size, int64_t count, float* tops, int64_t* columns,
            float* log_probs) {
  const float largest = find_tops(logits, allowed, size, tops);
  const float sum = sum_of_exps(logits, allowed, size, largest);
  const int64_t blocks = (size + kBlock - 1) / kBlock;
  // At least `count` logits are as large as the count-th largest top, and those of other blocks are smaller.
  for (int64_t place = 0; place < count; ++place) columns[place] = 0, log_probs[place] = kForbidden;
  for (int64_t block = 0; block < blocks; ++block) insert(tops[block], block, count, log_probs, columns);
  const float least = log_probs[count - 1];
  for (int64_t place = 0; place < count; ++place) columns[place] = 0, log_probs[place] = kForbidden;
  for (int64_t block = 0; block < blocks; ++block) {
    if (!(tops[block] >= least)) continue;
    const int64_t end = (block + 1) * kBlock < size ? (block + 1) * kBlock : size;
    for (int64_t place = block * kBlock; place < end; ++place)
      insert(allowed_or_none(logits, allowed, place), place, count, log_probs, columns);
  }
  // NaN anywhere in the row makes the sum NaN, and with it every log-probability of the row.
  const float log_sum = sum > 0 ? (float)log_of(sum) : std::numeric_limits<float>::quiet_NaN();
  for (int64_t place = 0; place < count; ++place) log_probs[place] = (log_probs[place] - largest) - log_sum;
}

const Kernels kKernels = {LINGON_NAME, kAddsFours, quantise, widen, scale_and_add, product, attend, choose};

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
