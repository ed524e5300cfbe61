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

constexpr int kParts = kPanel / kWide;  // vectors of a panel

// What the ends of the products of a panel read for every row. Beyond the last output it is 0.
struct PanelEnd {
  WideInts sums[kParts];
  WideFloats scale[kParts], bias[kParts];
  int64_t outputs;  // kPanel, or fewer at the end of a row

  PanelEnd() = default;
  LINGON_INLINE PanelEnd(const Weights& weights, int64_t panel) {
    const int64_t first = panel * kPanel;
    outputs = weights.outputs - first < kPanel ? weights.outputs - first : kPanel;
    for (int part = 0; part < kParts; ++part) {
      const int64_t begin = first + part * kWide, count = count_of(part);
      sums[part] = (WideInts)load_up_to<WideFloats>((const float*)weights.sums + begin, count);
      scale[part] = load_up_to<WideFloats>(weights.scale + begin, count);
      bias[part] = load_up_to<WideFloats>(weights.bias + begin, count);
    }
  }
  LINGON_INLINE int64_t count_of(int part) const {
    const int64_t left = outputs - part * kWide;
    return left < 0 ? 0 : left < kWide ? left : kWide;
  }
};

template <bool Whole, bool Added>
LINGON_INLINE void end_row(const int32_t* sums, RowScale row, const PanelEnd& panel, const Ending& ending,
                           int64_t place) {
  for (int part = 0; part < kParts; ++part, sums += kWide, place += kWide) {
    const int64_t count = Whole ? (int64_t)kWide : panel.count_of(part);
    WideInts sum;
    std::memcpy(&sum, sums, sizeof sum);
    sum -= (row.zero - kOffset) * panel.sums[part];
    const WideFloats scale = spread<WideFloats>(row.scale) * panel.scale[part];
    WideFloats found = __builtin_convertvector(sum, WideFloats) * scale + panel.bias[part];
    if (ending.relu) found = larger(spread<WideFloats>(0), found);  // NaN stays
    if (Added && ending.residual) found += load_up_to<WideFloats>(ending.residual + place, count);
    store_up_to(ending.outputs + place, found, count);
  }
}

// The outputs of a panel for some rows, from sums at a distance of `stride`. place: of the first of them.
template <bool Whole, bool Added>
LINGON_INLINE void end_rows_as(const int32_t* sums, int64_t stride, const RowScale* rows, int64_t count,
                               const PanelEnd& panel, const Ending& ending, int64_t place, int64_t outputs) {
  for (int64_t row = 0; row < count; ++row, sums += stride, place += outputs)
    end_row<Whole, Added>(sums, rows[row], panel, ending, place);
}

LINGON_INLINE void end_rows(const int32_t* sums, int64_t stride, const RowScale* rows, int64_t count,
                            const PanelEnd& panel, const Ending& ending, int64_t place, int64_t outputs) {
  if (panel.outputs < kPanel)
    end_rows_as<false, true>(sums, stride, rows, count, panel, ending, place, outputs);
  else if (ending.residual)
    end_rows_as<true, true>(sums, stride, rows, count, panel, ending, place, outputs);
  else
    end_rows_as<true, false>(sums, stride, rows, count, panel, ending, place, outputs);
}

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
  PanelEnd ends[Panels];
  for (int each = 0; each < Panels; ++each) ends[each] = PanelEnd(weights, panel + each);
  for (int64_t place = 0; place < rows.count; place += tile_rows) {
    const int64_t begin = place < rows.count - tile_rows ? place : rows.count - tile_rows;
    sums_of_tiles<Panels>(rows.values + begin * stride, stride, columns, groups, ahead, sums);
    ahead.from += ahead.lines * groups / kGroupsOfTile * kGroup * kPanel;
    for (int each = 0; each < Panels; ++each)
      end_rows(sums + each * kPanel, Panels * kPanel, rows.scales + begin, tile_rows, ends[each], ending,
               begin * weights.outputs + (panel + each) * kPanel, weights.outputs);
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
  int32_t sums[kTileRows * kPanel];
  const int64_t tiles = (rows.count + kTileRows - 1) / kTileRows;
  if (tiles == 0) return;
  // Tiles are of nearly equal size: small ones take more time for a row.
  const int64_t tile_rows = rows.count / tiles, larger_tiles = rows.count % tiles;
  const int64_t lines = (kPanel * kGroup + tiles - 1) / tiles;
  const int together = panels_at_once(tile_rows + (larger_tiles > 0));
  for (int64_t panel = first; panel < last; panel += together) {
    const int panels = last - panel < together ? 1 : together;
    const int8_t* columns = weights.panels + panel * bytes;
    const Order order = weights.order ? Order{weights.order + panel * groups / kGroups, weights.fours[panel]} : Order{};
    PanelEnd ends[panels_at_once(1)];
    for (int part = 0; part < panels; ++part) ends[part] = PanelEnd(weights, panel + part);
    // The next panel comes from memory during all tiles of this one: the first one alone would wait for it.
    Ahead ahead{columns + panels * bytes, lines};
    for (int64_t tile = 0, begin = 0; tile < tiles; ++tile) {
      const int64_t count = tile_rows + (tile < larger_tiles);
      tile_of<kTileRows>(count, panels, rows.values + begin * stride, stride, columns, groups, order, ahead, sums);
      for (int part = 0; part < panels; ++part)
        end_rows(sums + part * kPanel, panels * kPanel, rows.scales + begin, count, ends[part], ending,
                 begin * weights.outputs + (panel + part) * kPanel, weights.outputs);
      begin += count, ahead.from += groups * lines;
    }
  }
}

#define LINGON_TEXT(name) #name
#define LINGON_NAME(name) LINGON_TEXT(name)
const Kernels kKernels = {LINGON_NAME(LINGON_ISA),
                          kAddsFours,
                          quantise,
                          normalise,
                          widen,
                          narrow,
                          scale_and_add,
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
