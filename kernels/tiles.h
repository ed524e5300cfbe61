// Sums of products of 8-bit integers: a tile adds R rows of activations times a few panels of weights.
//
// Every instruction set gives the same integers. The panels are laid out for most of them: 64 bytes hold four inputs of
// 16 outputs. I8MM reads eight inputs of two outputs at a time, so that these lie together.
#pragma once

#include "kernels.h"
#include "vectors.h"

#if defined(LINGON_AVX2) || defined(LINGON_AVX_VNNI) || defined(LINGON_AVX512_VNNI)
#include <immintrin.h>
#elif defined(LINGON_NEON)
#include <arm_neon.h>
#endif

namespace lingon {
namespace LINGON_ISA {
namespace {  // nothing here may be linked into code for other processors

#if defined(LINGON_NEON) && !defined(LINGON_I8MM)
constexpr int32_t kOffset = 128;  // what a tile subtracts from each value
#else
constexpr int32_t kOffset = 0;
#endif

#if defined(LINGON_AVX2)
constexpr bool kAddsFours = true;
#else
constexpr bool kAddsFours = false;  // one instruction adds four products in 32 bits
#endif

#ifdef LINGON_I8MM
constexpr BlockLayout kLayout = kByOutputs;
#else
constexpr BlockLayout kLayout = kByGroups;
#endif

// The order of the blocks of a panel, and in how many of them four products fit, see Weights; null: in their order.
struct Order {
  const uint16_t* blocks = nullptr;
  int64_t fours = 0;
};

// Weights that are fetched from memory meanwhile: with every group of inputs a line, `step` bytes after the one before.
struct Ahead {
  const int8_t* from;
  int64_t step;
};

// sums: (R, Panels, 16), the sum over `groups` of four inputs. values: rows at a distance of `stride` bytes.
template <int R, int Panels>
void tile(const uint8_t* values, int64_t stride, const int8_t* panel, int64_t groups, const Order& order, Ahead ahead,
          int32_t* sums);

LINGON_INLINE int32_t four_bytes(const uint8_t* from) {
  int32_t found;
  std::memcpy(&found, from, sizeof found);
  return found;
}

#if defined(LINGON_AVX2) || defined(LINGON_AVX_VNNI)

constexpr int kTileRows = 6;

// Add the products of eight inputs: two groups of four bytes of values, and two vectors of weights at a distance of 64.
//
// Two products are at most 2 * 255 * 63, which 16 bits hold, and so are four where `Fours` says so: that takes three
// multiplications in place of four. The addition is in assembly, because the compiler does not keep all sums in place:
// it moves them, and some to memory and back, which takes a third more time.
template <bool Fours>
LINGON_INLINE void add_products(__m256i& sum, __m256i first, __m256i second, const int8_t* weights) {
  const __m256i of_first = _mm256_loadu_si256((const __m256i*)weights);
  const __m256i of_second = _mm256_loadu_si256((const __m256i*)(weights + 64));
#ifdef LINGON_AVX_VNNI
  sum = _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(sum, first, of_first), second, of_second);
#else
  const __m256i one = _mm256_set1_epi16(1);
  const __m256i twos = _mm256_maddubs_epi16(first, of_first), others = _mm256_maddubs_epi16(second, of_second);
  const __m256i found = Fours ? _mm256_madd_epi16(_mm256_add_epi16(twos, others), one)
                              : _mm256_add_epi32(_mm256_madd_epi16(twos, one), _mm256_madd_epi16(others, one));
  __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(found));
#endif
}

// The sums of R rows, in registers.
template <int R>
struct RowSums {
  RowSums<R - 1> others;
  __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();

  template <bool Fours>
  LINGON_INLINE void add(const uint8_t* values, int64_t stride, const int8_t* weights) {
    others.template add<Fours>(values, stride, weights);
    const uint8_t* own = values + (R - 1) * stride;
    const __m256i first = _mm256_set1_epi32(four_bytes(own)), second = _mm256_set1_epi32(four_bytes(own + 4));
    add_products<Fours>(low, first, second, weights);
    add_products<Fours>(high, first, second, weights + 32);
  }
  LINGON_INLINE void store(int32_t* sums) const {
    others.store(sums);
    _mm256_storeu_si256((__m256i*)(sums + (R - 1) * kPanel), low);
    _mm256_storeu_si256((__m256i*)(sums + (R - 1) * kPanel + 8), high);
  }
};

template <>
struct RowSums<0> {
  template <bool Fours>
  LINGON_INLINE void add(const uint8_t*, int64_t, const int8_t*) {}
  LINGON_INLINE void store(int32_t*) const {}
};

// Add the blocks first..last-1 of a panel.
template <int R, bool Fours, bool Ordered>
LINGON_INLINE void add_blocks(RowSums<R>& sums, const uint8_t* values, int64_t stride, const int8_t* panel,
                              int64_t first, int64_t last, const uint16_t* order, Ahead ahead) {
  for (int64_t block = first; block < last; ++block) {
    const int8_t *weights = panel + block * 128, *next = ahead.from + block * kGroups * ahead.step;
    _mm_prefetch((const char*)next, _MM_HINT_T1);
    _mm_prefetch((const char*)(next + ahead.step), _MM_HINT_T1);
    sums.template add<Fours>(values + 8 * (Ordered ? order[block] : block), stride, weights);
  }
}

template <int R, int Panels>
void tile(const uint8_t* values, int64_t stride, const int8_t* panel, int64_t groups, const Order& order, Ahead ahead,
          int32_t* sums) {
  RowSums<R> found;
  const int64_t blocks = groups / kGroups;
  if (order.blocks) {
    add_blocks<R, true, true>(found, values, stride, panel, 0, order.fours, order.blocks, ahead);
    add_blocks<R, false, true>(found, values, stride, panel, order.fours, blocks, order.blocks, ahead);
  } else {
    add_blocks<R, false, false>(found, values, stride, panel, 0, blocks, nullptr, ahead);
  }
  found.store(sums);
}

#elif defined(LINGON_AVX512_VNNI)

// Two panels at a time: a value is read once for both, as no more than two vectors can be read in a cycle, and few rows
// have enough sums that none waits for the one before.
constexpr int kTileRows = 8, kTilePanels = 2;

template <int R, int Panels>
void tile(const uint8_t* values, int64_t stride, const int8_t* panel, int64_t groups, const Order&, Ahead ahead,
          int32_t* sums) {
  const int64_t bytes = groups * kGroup * kPanel;
  __m512i found[R][Panels];
  for (int row = 0; row < R; ++row)
    for (int each = 0; each < Panels; ++each) found[row][each] = _mm512_setzero_si512();
  for (int64_t group = 0; group < groups; ++group, panel += 64, values += 4, ahead.from += ahead.step) {
    __m512i weights[Panels];
    for (int each = 0; each < Panels; ++each) {
      _mm_prefetch((const char*)(ahead.from + each * bytes), _MM_HINT_T1);
      weights[each] = _mm512_loadu_si512(panel + each * bytes);
      __asm__("" : "+v"(weights[each]));  // the compiler else loads them again for each row
    }
#pragma GCC unroll 8
    for (int row = 0; row < R; ++row) {
      const __m512i value = _mm512_set1_epi32(four_bytes(values + row * stride));
      for (int each = 0; each < Panels; ++each)
        found[row][each] = _mm512_dpbusd_epi32(found[row][each], value, weights[each]);
    }
  }
  for (int row = 0; row < R; ++row)
    for (int each = 0; each < Panels; ++each)
      _mm512_storeu_si512(sums + (row * Panels + each) * kPanel, found[row][each]);
}

#elif defined(LINGON_I8MM)

// Three pairs of rows: their sums take 24 of the 32 registers, and the weights of a panel are read once for all.
constexpr int kTileRows = 6, kRowStep = 2;

// The instruction multiplies two rows of eight values by two columns of eight weights: a sum has four numbers, those of
// the first row for two outputs and those of the second row. The values are unsigned. If R is odd, the last row is its
// own partner: its sums are computed twice, and one row takes as many instructions as dot products would.
template <int R, int Panels>
void tile(const uint8_t* values, int64_t stride, const int8_t* panel, int64_t groups, const Order&, Ahead,
          int32_t* sums) {
  constexpr int kRowPairs = (R + 1) / 2, kColumnPairs = kPanel / 2;
  constexpr int64_t kInputs = kGroup * kGroups;
  int32x4_t found[kRowPairs][kColumnPairs];
  for (int pair = 0; pair < kRowPairs; ++pair)
    for (int columns = 0; columns < kColumnPairs; ++columns) found[pair][columns] = vdupq_n_s32(0);
  for (int64_t block = 0; block < groups / kGroups; ++block, panel += kBlockBytes, values += kInputs) {
    uint8x16_t rows[kRowPairs];
    for (int pair = 0; pair < kRowPairs; ++pair) {
      const uint8_t* first = values + 2 * pair * stride;
      rows[pair] = vcombine_u8(vld1_u8(first), vld1_u8(2 * pair + 1 < R ? first + stride : first));
    }
    for (int columns = 0; columns < kColumnPairs; columns += 2) {
      const int8x16_t weights = vld1q_s8(panel + 2 * kInputs * columns);
      const int8x16_t others = vld1q_s8(panel + 2 * kInputs * (columns + 1));
      for (int pair = 0; pair < kRowPairs; ++pair) {
        found[pair][columns] = vusmmlaq_s32(found[pair][columns], rows[pair], weights);
        found[pair][columns + 1] = vusmmlaq_s32(found[pair][columns + 1], rows[pair], others);
      }
      __asm__ volatile("" : : : "memory");  // the compiler else reads more weights at once, and moves sums to memory
    }
  }
  for (int row = 0; row < R; ++row)
    for (int columns = 0; columns < kColumnPairs; ++columns) {
      const int32x4_t own = found[row / 2][columns];
      vst1_s32(sums + row * kPanel + 2 * columns, row % 2 ? vget_high_s32(own) : vget_low_s32(own));
    }
}

#elif defined(LINGON_NEON)

constexpr int kTileRows = 4;

// The instruction takes signed bytes: these are the sums of (value - kOffset) * weight.
template <int R, int Panels>
void tile(const uint8_t* values, int64_t stride, const int8_t* panel, int64_t groups, const Order&, Ahead,
          int32_t* sums) {
  int32x4_t found[R][4];
  for (int row = 0; row < R; ++row)
    for (int part = 0; part < 4; ++part) found[row][part] = vdupq_n_s32(0);
  for (int64_t group = 0; group < groups; ++group, panel += 64, values += 4) {
    int8x16_t weights[4];
    for (int part = 0; part < 4; ++part) weights[part] = vld1q_s8(panel + 16 * part);
    for (int row = 0; row < R; ++row) {
      const int32_t bytes = four_bytes(values + row * stride) ^ (int32_t)0x80808080u;
      const int8x16_t value = vreinterpretq_s8_s32(vdupq_n_s32(bytes));
      for (int part = 0; part < 4; ++part) found[row][part] = vdotq_s32(found[row][part], weights[part], value);
    }
  }
  for (int row = 0; row < R; ++row)
    for (int part = 0; part < 4; ++part) vst1q_s32(sums + row * kPanel + 4 * part, found[row][part]);
}

#else

constexpr int kTileRows = 4;

template <int R, int Panels>
void tile(const uint8_t* values, int64_t stride, const int8_t* panel, int64_t groups, const Order&, Ahead,
          int32_t* sums) {
  std::memset(sums, 0, R * kPanel * sizeof(int32_t));
  for (int64_t group = 0; group < groups; ++group, panel += 64, values += 4)
    for (int row = 0; row < R; ++row)
      for (int column = 0; column < kPanel; ++column)
        for (int input = 0; input < 4; ++input)
          sums[row * kPanel + column] += values[row * stride + input] * panel[4 * column + input];
}

#endif

#ifndef LINGON_AVX512_VNNI
constexpr int kTilePanels = 1;
#endif
#ifndef LINGON_I8MM
constexpr int kRowStep = 1;  // rows that an instruction takes together: a tile has a multiple, but for the last one
#endif

template <int R>
LINGON_INLINE void tile_of(int64_t rows, int panels, const uint8_t* values, int64_t stride, const int8_t* panel,
                           int64_t groups, const Order& order, Ahead ahead, int32_t* sums) {
  if constexpr (R > 1)
    if (rows < R) return tile_of<R - 1>(rows, panels, values, stride, panel, groups, order, ahead, sums);
  if constexpr (kTilePanels > 1)
    if (panels > 1) return tile<R, kTilePanels>(values, stride, panel, groups, order, ahead, sums);
  tile<R, 1>(values, stride, panel, groups, order, ahead, sums);
}

}  // namespace
}  // namespace LINGON_ISA
}  // namespace lingon
