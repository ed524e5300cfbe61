// One product of 8-bit integers, many times, so that an emulator can count its instructions: count ROWS INPUTS OUTPUTS
// REPETITIONS. `kernels/tests/count.py` runs it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../operators.h"
#include "../weights.h"

int main(int given, char** arguments) {
  using namespace lingon;
  if (given != 5) return 2;
  int64_t sizes[4];
  for (int each = 0; each < 4; ++each) sizes[each] = std::atoll(arguments[each + 1]);
  const auto [rows, inputs, outputs, repetitions] = sizes;
  const std::vector<int8_t> columns(inputs * outputs, 1);
  const auto packed = pack(columns.data(), inputs, outputs);
  const AlignedVector<uint8_t> values(rows * padded_inputs(inputs), 1);
  const std::vector<RowScale> scales(rows, {1.0f, 0});
  const std::vector<float> scale(outputs, 1.0f), bias(outputs, 0.0f);
  std::vector<float> found(rows * outputs);
  const Weights weights{packed->panels.data(), nullptr,     nullptr, packed->sums.data(),
                        scale.data(),          bias.data(), inputs,  outputs};
  for (int64_t each = 0; each < repetitions; ++each)
    kernels().product({values.data(), scales.data(), rows}, weights, 0, panels_of(outputs),
                      {found.data(), nullptr, false});
  return found[0] != (float)inputs;
}
