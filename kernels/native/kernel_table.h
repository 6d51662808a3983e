// The seam between the forward pass and an instruction set: the functions that each of them has.
// A new instruction set is one more isa_*.cpp that fills a table, and a line in isa.cpp.
//
// Every function treats a row the same way whatever other rows come with it: the order of the
// floating-point operations on a row does not depend on how many there are.
#pragma once

#include <cstdint>

#include "bf16.h"
#include "sizes.h"

namespace swiftspec {

// Up to 16 rows of int8 activations, interleaved as [depth / 4][rows][4] or, where an instruction
// set works on whole tiles, [depth / 64][rows][64]; each group of 64 inputs has a scale of its own,
// so that an outlier spoils its own group alone. 16 rows may be read, whatever `rows` says.
struct QuantisedBlock {
  const int8_t* values;
  const float* scales;         // [depth / 64][rows]
  const int32_t* corrections;  // [depth / 64][rows], -128 * sum of the group's values
  int rows;
};

// Where one row of a block is written to.
struct QuantisedRow {
  int8_t* values;  // of the block, as are the others
  float* scales;
  int32_t* corrections;
  int rows;   // of the block
  int index;  // of the row in it
};

// One row's place in attention: `prefix` positions of the cache, then `depth` slots of the tail.
struct RowPath {
  int prefix;
  int depth;
  uint8_t slots[kMaxDepth];

  int positions() const { return prefix + depth; }
};

// One key/value head, and up to 16 rows of the query heads that share it.
struct AttentionBlock {
  const bf16* keys;         // [position / 16][width][16]
  const bf16* values;       // [position][width]
  const bf16* tail_keys;    // [slot / 16][stride]: as keys, by slot
  const bf16* tail_values;  // [slot / 16][stride]: as values, by slot
  int64_t tail_stride;      // from one 16 slots to the next
  const float* queries;     // [rows][group][width], scaled by 1 / sqrt(head_dim)
  const RowPath* paths;     // [rows]
  int rows, group, width;
};

// Softmax over one chunk, not yet normalised; one entry for each (row, query head of the group).
struct AttentionPartial {
  float* maxima;    // [rows * group]
  float* sums;      // [rows * group]
  float* products;  // [rows * group][width]
};

struct KernelTable {
  const char* name;

  // Every thread calls these before and after it multiplies panels. May be null.
  void (*enter)();
  void (*leave)();

  // out[row][32] = channel scale * sum over groups, in order, of
  //     group scale * (sum over the group of activation * weight).
  // `ahead` points at the memory that will be read next; it may be null.
  void (*multiply_panel)(const uint8_t* panel, const float* scales, int depth,
                         const QuantisedBlock& block, const uint8_t* ahead, float* out);

  // One row to int8: value / (largest of its group / 127), rounded to nearest, ties to even.
  // `width` is a multiple of 64.
  void (*quantise_row)(const float* x, int width, const QuantisedRow& to);

  // y = x / sqrt(mean(x^2) + eps) * gain over `width` values, padded with zeros to whole vectors.
  void (*normalise_row)(const float* x, const float* gain, int width, float eps, float* y);

  // Rotary embedding in place, half-split: pairs are (x[i], x[i + half]).
  void (*rotate_head)(float* x, const float* cosines, const float* sines, int half);

  // out[16] = silu(gate[0..16]) * up[16..32].
  void (*gate_panel)(const float* panel, float* out);

  // The partial softmax over positions [chunk * 128, chunk * 128 + 128). `scores` is scratch of
  // rows * group * 128 values. Entries of rows that have no position there are left alone.
  void (*attend_chunk)(const AttentionBlock& block, int chunk, const AttentionPartial& partial,
                       float* scores);

  // The k <= n largest of x, descending; of equals the one that comes first. False if one is NaN.
  bool (*select_top)(const float* x, int n, int k, float* values, int32_t* ids);

  // The sum of exp(x - top) over n values.
  float (*sum_exponentials)(const float* x, int n, float top);

  // Moves keys, rows `from` (ascending; each at or behind its target) of a plane, to the rows from
  // `to` on of another plane or the same. Planes are [row / 16][stride], each [width][16].
  void (*gather_keys)(const bf16* plane, int64_t stride, const int32_t* from, int rows,
                      bf16* to_plane, int64_t to_stride, int to, int width);

  // out[width] = the softmax over all chunks of one (row, query head), from its partials, which
  // are `stride` entries apart.
  void (*combine_chunks)(const AttentionPartial& first, int chunks, int stride, int width,
                         float* out);
};

}  // namespace swiftspec
