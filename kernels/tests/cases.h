// Random nodes: sound ones, and ones with an attribute, a shape or a value that an operator must refuse or survive.
#pragma once

#include "../kernels.h"
#include "fake_ort.h"

namespace lingon {

// A node with its inputs. The outputs in `in_place` are in the memory of the inputs named there.
struct Case {
  std::string op;
  OrtKernelInfo info;
  std::map<size_t, size_t> in_place;  // output -> input
};

// The same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits();                               // SplitMix64
  int64_t between(int64_t least, int64_t most);  // both may be drawn
  bool chance(int percent) { return between(1, 100) <= percent; }

 private:
  uint64_t state_;
};

// The byte of a weight in panels of this layout, for the same inputs and outputs as a byte in panels of kByGroups.
int64_t place_in_panels(const BlockLayout& layout, int64_t by_groups);

// The operators that cases can be drawn for.
std::vector<std::string> known_operators();

Case draw_case(Random& random, const std::string& op);

// Change one thing so that the case may be wrong.
void spoil(Random& random, Case& drawn);

}  // namespace lingon
