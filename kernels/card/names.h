// Which kernel a node launches, by its dimensions and by the rows of a run.
#pragma once

#include <cstdint>

#include "../kernels.h"

namespace lingon {

struct KernelName {
  char text[48];
  operator const char*() const { return text; }
};

constexpr int64_t kMostNormed = 1024;  // inputs of a product that begins with a norm
constexpr int64_t kFewRows = 16;       // rows of the smaller tiles; the others have 32
constexpr int64_t kMostChosen = 16;    // candidates of a row
constexpr int64_t kMostSearched = 16;  // beams of a sentence
constexpr int64_t kChosenBlock = 128;  // columns of logits that a program of `choose` searches

// What a program of `linear` computes.
struct Tile {
  int64_t rows, columns;
  const char* name;
};
constexpr Tile kTiles[] = {{16, 16, "m16"}, {32, 32, "m32n32"}, {32, 64, "m32"}};

// The tile for a product; all give the same bits.
const Tile& linear_tile(int64_t rows, int64_t outputs);

KernelName linear_kernel(NormKind norm, int64_t inputs, const Tile& tile);
KernelName norm_kernel(NormKind norm);
KernelName attention_kernel(const char* kind, int64_t head_size);  // kind: step, cross or self
KernelName choose_kernel(int64_t count, int64_t rows, bool logits);
KernelName merge_kernel(int64_t count);
int64_t list_size(int64_t count);  // candidates of a row that `choose` keeps in each block
KernelName beam_step_kernel(int64_t beams, int64_t candidates);

// Rows of a tile of `choose`.
inline int64_t tile_rows(int64_t rows) { return rows <= kFewRows ? 16 : 32; }

inline int64_t programs_for(int64_t size, int64_t block) { return (size + block - 1) / block; }

}  // namespace lingon
