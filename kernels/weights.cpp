#include "weights.h"

#include <map>
#include <mutex>

#include "kernels.h"
#include "session.h"

namespace lingon {
namespace {

constexpr int64_t kMostOutputs = 1 << 24;

int64_t place_of(int64_t input, int64_t output, int64_t inputs) {
  return output / kPanel * panel_bytes(inputs) + input / kGroup * (kGroup * kPanel) + output % kPanel * kGroup +
         input % kGroup;
}

uint64_t hash_of(const int8_t* values, int64_t size) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (int64_t place = 0; place < size; ++place) hash = (hash ^ (uint8_t)values[place]) * 1099511628211u;
  return hash;
}

bool equals(const PackedWeights& packed, const int8_t* columns, int64_t inputs, int64_t outputs) {
  if (packed.inputs != inputs || packed.outputs != outputs) return false;
  for (int64_t input = 0; input < inputs; ++input)
    for (int64_t output = 0; output < outputs; ++output)
      if (packed.panels[place_of(input, output, inputs)] != columns[input * outputs + output]) return false;
  return true;
}

std::shared_ptr<PackedWeights> pack_anew(const int8_t* columns, int64_t inputs, int64_t outputs) {
  auto packed = std::make_shared<PackedWeights>();
  packed->inputs = inputs, packed->outputs = outputs;
  packed->panels.assign(panels_of(outputs) * panel_bytes(inputs), 0);
  packed->sums.assign(outputs, 0);
  for (int64_t input = 0; input < inputs; ++input)
    for (int64_t output = 0; output < outputs; ++output) {
      const int8_t weight = columns[input * outputs + output];
      require(-kMostWeight <= weight && weight <= kMostWeight, "has a weight beyond +-63");
      packed->panels[place_of(input, output, inputs)] = weight;
      packed->sums[output] += weight;
    }
  return packed;
}

}  // namespace

std::shared_ptr<const PackedWeights> pack(const int8_t* columns, int64_t inputs, int64_t outputs) {
  require(0 < inputs && inputs <= kMostInputs, "takes 1 to 65,536 inputs");
  require(0 < outputs && outputs <= kMostOutputs, "has 1 to 16,777,216 outputs");
  static std::mutex mutex;
  static std::multimap<uint64_t, std::weak_ptr<PackedWeights>> known;
  const uint64_t hash = hash_of(columns, inputs * outputs);
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto [each, end] = known.equal_range(hash); each != end;) {
    if (auto packed = each->second.lock()) {
      if (equals(*packed, columns, inputs, outputs)) return packed;
      ++each;
    } else {
      each = known.erase(each);
    }
  }
  auto packed = pack_anew(columns, inputs, outputs);
  known.emplace(hash, packed);
  return packed;
}

}  // namespace lingon
