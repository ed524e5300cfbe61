// The arithmetic of kernels.h for one instruction set, LINGON_ISA. All functions compute a row without the other rows.
//
// It uses no containers: their code, compiled for a new processor, could be linked into functions for all processors.
#pragma once

#ifdef LINGON_AMX
#include "amx.h"
#endif
#include "attend.h"
#include "choice.h"
#include "floats.h"
#include "halves.h"
#include "kernels.h"
#include "rows.h"
#include "tiles.h"
#include "vectors.h"

namespace lingon {
namespace LINGON_ISA {
namespace {

// What the ends of products read for every row: kWide outputs from the first one of a panel, or fewer. Beyond the last
// output it is 0.
struct OutputEnd {
  WideInts sums;
  WideFloats scale, bias;
  int64_t first, count;

  OutputEnd() = default;
  LINGON_INLINE OutputEnd(const Weights& weights, int64_t first) : first(first) {
    const int64_t left = weights.outputs - first;
    count = left < 0 ? 0 : left < kWide ? left : kWide;
    sums = (WideInts)load_up_to<WideFloats>((const float*)weights.sums + first, count);
    scale = load_up_to<WideFloats>(weights.scale + first, count);
    bias = load_up_to<WideFloats>(weights.bias + first, count);
  }
};

// The ends of the products of some panels.
template <int Panels>
struct PanelEnds {
  OutputEnd parts[Panels * kParts];
  const Rows& rows;
  const Ending& ending;
  int64_t outputs;

  LINGON_INLINE PanelEnds(const Rows& rows, const Weights& weights, const Ending& ending, int64_t panel, int panels)
      : rows(rows), ending(ending), outputs(weights.outputs) {
    for (int part = 0; part < panels * kParts; ++part) parts[part] = {weights, panel * kPanel + part * kWide};
  }

  // Write the outputs of `count` rows from sums (count, panels, 16). What all rows read stays in registers.
  LINGON_INLINE void write(const int32_t* sums, int64_t first, int64_t count, int panels) const {
    for (int part = 0; part < panels * kParts; ++part) {
      const OutputEnd own = parts[part];
      for (int64_t row = 0; row < count; ++row) {
        const RowScale by = rows.scales[first + row];
        const WideInts sum =
            load<WideInts>(sums + (row * panels * kParts + part) * kWide) - (by.zero - kOffset) * own.sums;
        const WideFloats scale = spread<WideFloats>(by.scale) * own.scale;
        const WideFloats found = __builtin_convertvector(sum, WideFloats) * scale + own.bias;
        end_outputs(found, ending, (first + row) * outputs + own.first, own.count);
      }
    }
  }
};

#ifdef LINGON_AMX

constexpr int64_t kFewestRows = 4;  // below, the instructions of AVX-512 are as fast

// The outputs of some panels for all rows. Tiles have as many rows each: the last ones may overlap.
template <int Panels>
void product_in_tiles(const Rows& rows, const Weights& weights, int64_t panel, int64_t tile_rows,
                      const Ending& ending) {
  const int64_t stride = padded_inputs(weights.inputs), groups = stride / kGroup;
  const int8_t* columns = weights.panels + panel * stride * kPanel;
  const int64_t tiles = (rows.count + tile_rows - 1) / tile_rows;
  LinesAhead ahead{columns + Panels * stride * kPanel, (Panels * kGroupsOfTile + tiles - 1) / tiles};
  alignas(64) int32_t sums[kRowsOfTile * Panels * kPanel];
  const PanelEnds<Panels> ends(rows, weights, ending, panel, Panels);
  for (int64_t place = 0; place < rows.count; place += tile_rows) {
    const int64_t begin = place < rows.count - tile_rows ? place : rows.count - tile_rows;
    sums_of_tiles<Panels>(rows.values + begin * stride, stride, columns, groups, ahead, sums);
    ahead.from += ahead.lines * groups / kGroupsOfTile * kGroup * kPanel;
    ends.write(sums, begin, tile_rows, Panels);
  }
}

void product_in_tiles(const Rows& rows, const Weights& weights, int64_t first, int64_t last, const Ending& ending) {
  const int64_t tiles = (rows.count + kRowsOfTile - 1) / kRowsOfTile, tile_rows = (rows.count + tiles - 1) / tiles;
  shape_tiles(tile_rows);
  for (; last - first >= kPanels; first += kPanels) product_in_tiles<kPanels>(rows, weights, first, tile_rows, ending);
  for (; first < last; ++first) product_in_tiles<1>(rows, weights, first, tile_rows, ending);
  _tile_release();
}

#endif

void product(const Rows& rows, const Weights& weights, int64_t first, int64_t last, const Ending ending) {
#ifdef LINGON_AMX
  if (rows.count >= kFewestRows && weights.inputs % (kGroup * kGroupsOfTile) == 0)
    return product_in_tiles(rows, weights, first, last, ending);
#endif
  const int64_t stride = padded_inputs(weights.inputs), groups = stride / kGroup, bytes = stride * kPanel;
  alignas(64) int32_t sums[kTileRows * kTilePanels * kPanel];
  const int64_t tiles = (rows.count + kTileRows - 1) / kTileRows;
  if (tiles == 0) return;
  // Tiles are of nearly equal size: small ones take more time for a row.
  const int64_t steps = (rows.count + kRowStep - 1) / kRowStep;
  const int64_t tile_steps = steps / tiles, larger_tiles = steps % tiles;
  const int64_t lines = (kPanel * kGroup + tiles - 1) / tiles;
  for (int64_t panel = first; panel < last; panel += kTilePanels) {
    const int panels = last - panel < kTilePanels ? 1 : kTilePanels;
    const int8_t* columns = weights.panels + panel * bytes;
    const Order order = weights.order ? Order{weights.order + panel * groups / kGroups, weights.fours[panel]} : Order{};
    const PanelEnds<kTilePanels> ends(rows, weights, ending, panel, panels);
    // The next panel comes from memory during all tiles of this one: the first one alone would wait for it.
    Ahead ahead{columns + panels * bytes, lines};
    for (int64_t tile = 0, begin = 0; tile < tiles; ++tile) {
      const int64_t most = kRowStep * (tile_steps + (tile < larger_tiles)), left = rows.count - begin;
      const int64_t count = most < left ? most : left;
      tile_of<kTileRows>(count, panels, rows.values + begin * stride, stride, columns, groups, order, ahead, sums);
      ends.write(sums, begin, count, panels);
      begin += count, ahead.from += groups * lines;
    }
  }
}

#define LINGON_TEXT(name) #name
#define LINGON_NAME(name) LINGON_TEXT(name)
const Kernels kKernels = {LINGON_NAME(LINGON_ISA),
                          kAddsFours,
                          kLayout,
                          quantise,
                          normalise,
                          widen,
                          narrow,
                          scale_and_add,
                          advance_cell,
                          product,
                          product_of_floats<float>,
                          product_of_floats<Half>,
                          transpose,
                          attend<float>,
                          attend<Half>,
                          forbid,
                          choose};

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
