// Products of 8-bit integers in the tile registers of AMX: 16 rows times 16 outputs times 64 inputs an instruction.
//
// A panel as it lies in memory is a column of tiles: 64 bytes hold four inputs of 16 outputs.
#pragma once

#include <immintrin.h>

#include "kernels.h"

namespace lingon {
namespace LINGON_ISA {
namespace {

constexpr int64_t kRowsOfTile = 16, kGroupsOfTile = 16, kBytesOfTile = kGroupsOfTile * kGroup * kPanel;

// Set the shapes of the registers: rows of sums in 0 to 3 and of activations in 4, weights in 5 to 7. A thread that is
// done releases them with _tile_release(), so that the system does not have to save them.
inline void shape_tiles(int64_t rows) {
  struct {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } shapes;
  for (int place = 0; place < 8; ++place)
    shapes.bytes[place] = kGroup * kGroupsOfTile, shapes.rows[place] = place < 5 ? (uint8_t)rows : kGroupsOfTile;
  __asm__ volatile("" : : "r"(&shapes) : "memory");  // for all that GCC knows, the next line reads eight bytes alone
  _tile_loadconfig(&shapes);
}

// Weights that are fetched from memory meanwhile: so many lines of 64 bytes with every tile.
struct LinesAhead {
  const int8_t* from;
  int64_t lines;
};

// sums: (rows of the shapes, Panels, 16), over `groups` of four inputs, a multiple of those of a tile.
template <int Panels>
void sums_of_tiles(const uint8_t* values, int64_t stride, const int8_t* panel, int64_t groups, LinesAhead ahead,
                   int32_t* sums) {
  static_assert(Panels == 1 || Panels == 4, "the registers below");
  const int64_t bytes = groups * kGroup * kPanel, line = kGroup * kPanel;
  _tile_zero(0);
  if (Panels == 4) {
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t group = 0; group < groups; group += kGroupsOfTile, values += line, panel += kBytesOfTile) {
    for (int64_t each = 0; each < ahead.lines; ++each, ahead.from += line)
      _mm_prefetch((const char*)ahead.from, _MM_HINT_T1);
    _tile_loadd(4, values, stride);
    _tile_loadd(5, panel, line);
    _tile_dpbusd(0, 4, 5);
    if (Panels == 4) {
      _tile_loadd(6, panel + bytes, line);
      _tile_dpbusd(1, 4, 6);
      _tile_loadd(7, panel + 2 * bytes, line);
      _tile_dpbusd(2, 4, 7);
      _tile_loadd(5, panel + 3 * bytes, line);
      _tile_dpbusd(3, 4, 5);
    }
  }
  constexpr int64_t kLine = Panels * kPanel * sizeof(int32_t);
  _tile_stored(0, sums, kLine);
  if (Panels == 4) {
    _tile_stored(1, sums + kPanel, kLine);
    _tile_stored(2, sums + 2 * kPanel, kLine);
    _tile_stored(3, sums + 3 * kPanel, kLine);
  }
}

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
