// Products of float32 rows with weights of float32 or float16: a tile adds R rows times a few panels of weights.
//
// An output adds its products in the order of the inputs, each with one rounding for product and sum. So a row has the
// same bits alone and among others, and with every instruction set.
#pragma once

#include "halves.h"
#include "kernels.h"
#include "rows.h"
#include "vectors.h"

namespace lingon {
namespace LINGON_ISA {
namespace {

// The most rows of a tile of so many panels: their sums fit the registers beside the weights. Few rows take many
// panels, so that no addition waits for the one before.
#if defined(LINGON_AVX512_VNNI)
constexpr int rows_of(int panels) { return panels == 4 ? 6 : 12; }
#else
constexpr int rows_of(int panels) { return panels == 4 ? 1 : panels == 2 ? 3 : 6; }
#endif

template <typename T>
struct FloatTile {
  const FloatRows& rows;
  const FloatWeights<T>& weights;
  const Ending& ending;

  template <int R, int Panels>
  void add(int64_t row, int64_t panel) const {
    const int64_t inputs = weights.inputs;
    const float* values = rows.values + row * inputs;
    const T* columns = weights.panels + panel * inputs * kPanel;
    constexpr int64_t kLine = 64, kBytes = Panels * kPanel * (int64_t)sizeof(T);  // of an input
    const char* next = (const char*)(columns + Panels * inputs * kPanel);  // come from memory meanwhile
    WideFloats sums[R][Panels * kParts] = {};
    for (int64_t input = 0; input < inputs; ++input, columns += kPanel, next += kBytes) {
      for (int64_t line = 0; line < kBytes; line += kLine) __builtin_prefetch(next + line, 0, 2);
      WideFloats read[Panels * kParts];
      for (int part = 0; part < Panels * kParts; ++part)
        read[part] = load<WideFloats>(columns + part / kParts * inputs * kPanel + part % kParts * kWide);
#pragma GCC unroll 12
      for (int each = 0; each < R; ++each) {
        const WideFloats value = spread<WideFloats>(values[each * inputs + input]);
        for (int part = 0; part < Panels * kParts; ++part)
          sums[each][part] = fused(value, read[part], sums[each][part]);
      }
    }
    for (int part = 0; part < Panels * kParts; ++part)
      for (int each = 0; each < R; ++each) end(sums[each][part], row + each, panel * kPanel + part * kWide);
  }

  // Write the sums of a row for the outputs from `output` on.
  LINGON_INLINE void end(WideFloats sums, int64_t row, int64_t output) const {
    const int64_t left = weights.outputs - output, count = left < kWide ? left : kWide;
    if (count <= 0) return;
    end_outputs(sums + load_up_to<WideFloats>(weights.bias + output, count), ending, row * weights.outputs + output,
                count);
  }

  // The same for a number of rows up to R.
  template <int R, int Panels>
  LINGON_INLINE void add_some(int64_t count, int64_t row, int64_t panel) const {
    if constexpr (R > 1)
      if (count < R) return add_some<R - 1, Panels>(count, row, panel);
    add<R, Panels>(row, panel);
  }

  // All rows, in tiles of nearly equal size: small ones take more time for a row.
  template <int Panels>
  void add_all(int64_t tiles, int64_t panel) const {
    for (int64_t each = 0, row = 0; each < tiles; ++each) {
      const int64_t count = rows.count / tiles + (each < rows.count % tiles);
      add_some<rows_of(Panels), Panels>(count, row, panel);
      row += count;
    }
  }

  template <int Panels>
  void add_panels(int64_t tiles, int64_t first, int64_t last) const {
    for (; first + Panels <= last; first += Panels) add_all<Panels>(tiles, first);
    for (; first < last; ++first) add_all<1>(tiles, first);
  }
};

template <typename T>
void product_of_floats(const FloatRows& rows, const FloatWeights<T>& weights, int64_t first, int64_t last,
                       const Ending ending) {
  const FloatTile<T> tile{rows, weights, ending};
  const int64_t tiles = (rows.count + rows_of(1) - 1) / rows_of(1);
  if (tiles == 0) return;
  const int64_t most = (rows.count + tiles - 1) / tiles;  // rows of a tile
  if (most <= rows_of(4))
    tile.template add_panels<4>(tiles, first, last);
  else if (most <= rows_of(2))
    tile.template add_panels<2>(tiles, first, last);
  else
    tile.template add_panels<1>(tiles, first, last);
}

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
