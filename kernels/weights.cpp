#include "weights.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <list>
#include <mutex>
#include <utility>

#include "kernels.h"
#include "mapped.h"
#include "operators.h"

namespace lingon {
namespace {

constexpr int64_t kMostOutputs = 1 << 24;

uint64_t mixed(uint64_t hash, uint64_t word) { return (hash ^ word) * 1099511628211u; }

// FNV-1a of words of 8 bytes in four sequences, which the processor computes side by side, and of the last bytes.
uint64_t hash_of(const void* values, int64_t bytes) {
  constexpr int64_t kLanes = 4, kStep = kLanes * (int64_t)sizeof(uint64_t);
  const auto* from = (const uint8_t*)values;
  ReadOnce read(values, bytes);
  uint64_t lanes[kLanes] = {14695981039346656037u, 1, 2, 3};
  int64_t place = 0;
  for (; place + kStep <= bytes; place += kStep) {
    if (place % ReadOnce::kStep == 0) read.up_to(from + place);
    uint64_t words[kLanes];
    std::memcpy(words, from + place, kStep);
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = mixed(lanes[lane], words[lane]);
  }
  uint64_t hash = lanes[0];
  for (; place < bytes; ++place) hash = mixed(hash, from[place]);
  for (int64_t lane = 1; lane < kLanes; ++lane) hash = mixed(hash, lanes[lane]);
  return hash;
}

void check_sizes(int64_t inputs, int64_t outputs) {
  require(0 < inputs && inputs <= kMostInputs, "takes 1 to 65,536 inputs");
  require(0 < outputs && outputs <= kMostOutputs, "has 1 to 16,777,216 outputs");
}

// What make() returns, or what it has returned for equal weights, while that is in use. Weights with another hash are
// not equal.
template <typename Packed, typename Equals, typename Make>
std::shared_ptr<const Packed> shared(uint64_t hash, const Equals& equals, const Make& make) {
  static std::mutex mutex;
  static std::list<std::pair<uint64_t, std::weak_ptr<const Packed>>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  known.remove_if([](const auto& each) { return each.second.expired(); });
  for (const auto& each : known)
    if (each.first == hash)
      if (const auto packed = each.second.lock(); packed && equals(*packed)) return packed;
  std::shared_ptr<const Packed> packed = make();
  known.emplace_back(hash, packed);
  return packed;
}

// Write the weights of a group of inputs in a panel of outputs, in the order in which they are packed; zeros beyond the
// ends. `step` are the bytes from an output to the next one.
template <int64_t step>
void gather_group(const int8_t* columns, int64_t inputs, int64_t outputs, int64_t group, int64_t panel, int8_t* to) {
  const int64_t first = group * kGroup, begin = panel * kPanel;
  if (first + kGroup <= inputs && begin + kPanel <= outputs) {
    const int8_t* from = columns + first * outputs + begin;
    for (int64_t output = 0; output < kPanel; ++output)
      for (int64_t input = 0; input < kGroup; ++input) to[output * step + input] = from[input * outputs + output];
    return;
  }
  for (int64_t output = 0; output < kPanel; ++output)
    for (int64_t input = 0; input < kGroup; ++input)
      to[output * step + input] = first + input < inputs && begin + output < outputs
                                      ? columns[(first + input) * outputs + begin + output]
                                      : (int8_t)0;
}

// The weights of a block of inputs in a panel of outputs.
void gather_block(const int8_t* columns, int64_t inputs, int64_t outputs, int64_t block, int64_t panel,
                  const BlockLayout& layout, int8_t* to) {
  for (int64_t group = block * kGroups; group < (block + 1) * kGroups; ++group, to += layout.group)
    if (layout.output == kByGroups.output)
      gather_group<kByGroups.output>(columns, inputs, outputs, group, panel, to);
    else
      gather_group<kByOutputs.output>(columns, inputs, outputs, group, panel, to);
}

// The place of a block of inputs in a panel.
int64_t place_of_block(const PackedWeights& packed, int64_t block, int64_t panel) {
  const int64_t blocks = blocks_of(packed.inputs), first = panel * blocks;
  if (packed.order.empty()) return first + block;
  const auto begin = packed.order.begin() + first;
  return first + (std::find(begin, begin + blocks, (uint16_t)block) - begin);
}

// Call each(block, panel) for all blocks of all panels, in the order of the columns, which are read once so. A few
// blocks of a panel follow each other, because they are neighbours in the packed weights too.
template <typename Each>
void for_blocks(const int8_t* columns, int64_t inputs, int64_t outputs, const Each& each) {
  constexpr int64_t kTogether = 4;
  const int64_t blocks = blocks_of(inputs);
  ReadOnce read(columns, inputs * outputs);
  for (int64_t first = 0; first < blocks; first += kTogether) {
    const int64_t last = std::min(first + kTogether, blocks);
    for (int64_t panel = 0; panel < panels_of(outputs); ++panel)
      for (int64_t block = first; block < last; ++block) each(block, panel);
    read.up_to(columns + std::min(last * kGroups * kGroup, inputs) * outputs);
  }
  read.finish(columns + inputs * outputs);
}

// Whether these columns are packed.
bool equals(const PackedWeights& packed, const int8_t* columns, int64_t inputs, int64_t outputs) {
  if (packed.inputs != inputs || packed.outputs != outputs) return false;
  const BlockLayout layout = kernels().layout;
  bool equal = true;
  for_blocks(columns, inputs, outputs, [&](int64_t block, int64_t panel) {
    int8_t expected[kBlockBytes];
    gather_block(columns, inputs, outputs, block, panel, layout, expected);
    const int64_t place = place_of_block(packed, block, panel);
    equal = equal && std::memcmp(&packed.panels[place * kBlockBytes], expected, kBlockBytes) == 0;
  });
  return equal;
}

// Whether no sum of four products in 16 bits can overflow: of two inputs of one group and the same two of the next.
bool fours_fit(const int8_t* block) {
  constexpr int64_t kBytes = kGroup * kPanel;  // of a group
  for (int64_t pair = 0; pair < kBytes; pair += 2) {
    int most = 0, least = 0;  // of the sum, for activations of 1
    for (const int8_t weight : {block[pair], block[pair + 1], block[kBytes + pair], block[kBytes + pair + 1]})
      (weight > 0 ? most : least) += weight;
    if (std::max(most, -least) * kMostLevel > std::numeric_limits<int16_t>::max()) return false;
  }
  return true;
}

// Put the blocks of each panel in which four products fit before the others.
void order_blocks(PackedWeights& packed) {
  const int64_t blocks = blocks_of(packed.inputs), panels = panels_of(packed.outputs);
  AlignedVector<int8_t> before(blocks * kBlockBytes);
  packed.order.resize(panels * blocks), packed.fours.resize(panels);
  for (int64_t panel = 0; panel < panels; ++panel) {
    std::copy_n(&packed.panels[panel * blocks * kBlockBytes], blocks * kBlockBytes, before.data());
    const int8_t* from = before.data();
    int64_t fours = 0, others = blocks;
    for (int64_t block = 0; block < blocks; ++block, from += kBlockBytes) {
      const int64_t place = panel * blocks + (fours_fit(from) ? fours++ : --others);
      packed.order[place] = (uint16_t)block;
      std::copy_n(from, kBlockBytes, &packed.panels[place * kBlockBytes]);
    }
    packed.fours[panel] = (int32_t)fours;
  }
}

// The sum of the weights of each output. Throws Refusal if a weight is too large.
std::vector<int32_t> sums_of(const int8_t* columns, int64_t inputs, int64_t outputs) {
  std::vector<int32_t> sums(outputs, 0);
  ReadOnce read(columns, inputs * outputs);
  for (int64_t input = 0; input < inputs; ++input) {
    const int8_t* row = columns + input * outputs;
    const auto [least, most] = std::minmax_element(row, row + outputs);
    require(-kMostWeight <= *least && *most <= kMostWeight, "has a weight beyond +-63");
    for (int64_t output = 0; output < outputs; ++output) sums[output] += row[output];
    read.up_to(row + outputs);
  }
  return sums;
}

std::shared_ptr<const PackedWeights> pack_anew(const int8_t* columns, int64_t inputs, int64_t outputs) {
  auto packed = std::make_shared<PackedWeights>();
  packed->inputs = inputs, packed->outputs = outputs;
  packed->sums = sums_of(columns, inputs, outputs);
  packed->panels.assign(panels_of(outputs) * panel_bytes(inputs), 0);
  const BlockLayout layout = kernels().layout;
  for_blocks(columns, inputs, outputs, [&](int64_t block, int64_t panel) {
    int8_t* to = &packed->panels[place_of_block(*packed, block, panel) * kBlockBytes];
    gather_block(columns, inputs, outputs, block, panel, layout, to);
  });
  if (kernels().adds_fours) order_blocks(*packed);
  return packed;
}

}  // namespace

std::shared_ptr<const PackedWeights> pack(const int8_t* columns, int64_t inputs, int64_t outputs) {
  check_sizes(inputs, outputs);
  return shared<PackedWeights>(
      hash_of(columns, inputs * outputs),
      [&](const PackedWeights& packed) { return equals(packed, columns, inputs, outputs); },
      [&] { return pack_anew(columns, inputs, outputs); });
}

std::shared_ptr<const OutputRows> rows_of_outputs(const int8_t* columns, int64_t inputs, int64_t outputs) {
  check_sizes(inputs, outputs);
  const int64_t stride = padded_inputs(inputs);
  // Calls each(input, output) for all weights, in squares of one line of the cache a side: a line of the columns or of
  // the rows is else read or written many times.
  const auto for_weights = [&](const auto& each) {
    constexpr int64_t kSide = 64;
    ReadOnce read(columns, inputs * outputs);
    for (int64_t first = 0; first < inputs; first += kSide) {
      const int64_t last = std::min(first + kSide, inputs);
      for (int64_t begin = 0; begin < outputs; begin += kSide)
        for (int64_t output = begin; output < std::min(begin + kSide, outputs); ++output)
          for (int64_t input = first; input < last; ++input) each(input, output);
      read.up_to(columns + last * outputs);
    }
    read.finish(columns + inputs * outputs);
  };
  const auto equals = [&](const OutputRows& known) {
    if (known.inputs != inputs || known.outputs != outputs) return false;
    bool equal = true;
    for_weights([&](int64_t input, int64_t output) {
      equal &= known.rows[output * stride + input] == columns[input * outputs + output];
    });
    return equal;
  };
  return shared<OutputRows>(hash_of(columns, inputs * outputs), equals, [&] {
    auto made = std::make_shared<OutputRows>();
    made->inputs = inputs, made->outputs = outputs;
    made->sums = sums_of(columns, inputs, outputs);
    made->rows.assign(outputs * stride, 0);
    for_weights([&](int64_t input, int64_t output) {
      made->rows[output * stride + input] = columns[input * outputs + output];
    });
    return made;
  });
}

template <typename T>
std::shared_ptr<const PackedFloats<T>> pack_floats(const T* weights, int64_t inputs, int64_t outputs) {
  check_sizes(inputs, outputs);
  const auto place_of = [inputs](int64_t output, int64_t input) {
    return (output / kPanel * inputs + input) * kPanel + output % kPanel;
  };
  const auto equals = [&](const PackedFloats<T>& packed) {
    if (packed.inputs != inputs || packed.outputs != outputs) return false;
    ReadOnce read(weights, inputs * outputs * sizeof(T));
    for (int64_t output = 0; output < outputs; ++output) {
      for (int64_t input = 0; input < inputs; ++input)
        if (std::memcmp(&packed.panels[place_of(output, input)], &weights[output * inputs + input], sizeof(T)) != 0)
          return false;
      read.up_to(weights + (output + 1) * inputs);
    }
    read.finish(weights + inputs * outputs);
    return true;
  };
  return shared<PackedFloats<T>>(hash_of(weights, inputs * outputs * sizeof(T)), equals, [&] {
    auto packed = std::make_shared<PackedFloats<T>>();
    packed->inputs = inputs, packed->outputs = outputs;
    packed->panels.assign(panels_of(outputs) * inputs * kPanel, T{});
    ReadOnce read(weights, inputs * outputs * sizeof(T));
    for (int64_t output = 0; output < outputs; ++output) {
      for (int64_t input = 0; input < inputs; ++input)
        packed->panels[place_of(output, input)] = weights[output * inputs + input];
      read.up_to(weights + (output + 1) * inputs);
    }
    read.finish(weights + inputs * outputs);
    return packed;
  });
}

template std::shared_ptr<const PackedFloats<float>> pack_floats(const float*, int64_t, int64_t);
template std::shared_ptr<const PackedFloats<Half>> pack_floats(const Half*, int64_t, int64_t);

}  // namespace lingon
