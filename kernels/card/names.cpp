// See names.h.
#include "names.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace lingon {
namespace {

constexpr int64_t kManyPrograms = 128;  // about as many as a card has processors

[[gnu::format(printf, 1, 2)]] KernelName name_of(const char* format, ...) {
  KernelName made;
  va_list values;
  va_start(values, format);
  std::vsnprintf(made.text, sizeof made.text, format, values);
  va_end(values);
  return made;
}

const char* text_of(NormKind norm) {
  return norm == NormKind::kNone ? "none" : norm == NormKind::kLayer ? "layer" : "rms";
}

}  // namespace

const Tile& linear_tile(int64_t rows, int64_t outputs) {
  if (rows <= kFewRows) return kTiles[0];
  const Tile& large = kTiles[2];
  const bool fills = programs_for(rows, large.rows) * programs_for(outputs, large.columns) >= kManyPrograms;
  return fills ? large : kTiles[1];
}

KernelName linear_kernel(NormKind norm, int64_t inputs, const Tile& tile) {
  if (norm == NormKind::kNone) return name_of("linear_none_%s", tile.name);
  const int padded = inputs <= 256 ? 256 : inputs <= 512 ? 512 : 1024;
  return name_of("linear_%s_k%d_%s", text_of(norm), padded, tile.name);
}

KernelName norm_kernel(NormKind norm) { return name_of("norm_%s", text_of(norm)); }

KernelName attention_kernel(const char* kind, int64_t head_size) {
  return name_of("%s_attention_d%d", kind, (int)head_size);
}

int64_t list_size(int64_t count) { return count <= 1 ? 1 : count <= 8 ? 8 : kMostChosen; }

KernelName choose_kernel(int64_t count, int64_t rows, bool logits) {
  return name_of("choose_t%d_m%d%s", (int)list_size(count), (int)tile_rows(rows), logits ? "_logits" : "");
}

KernelName merge_kernel(int64_t count) { return name_of("merge_t%d", (int)list_size(count)); }

KernelName beam_step_kernel(int64_t beams, int64_t candidates) {
  const int64_t least = std::max(beams, (candidates + 1) / 2);  // a kernel takes twice its beams as candidates
  return name_of("beam_step_b%d", least <= 2 ? 2 : least <= 4 ? 4 : least <= 8 ? 8 : 16);
}

}  // namespace lingon
