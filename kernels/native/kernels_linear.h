// Int8 matrix products. A panel holds 32 output channels as [depth / 4][2][16][4] bytes, each
// weight + 128, so that the unsigned-by-signed dot instruction applies; sums start at -128 * (sum
// of the activations) to make up for it. Integer sums over a group of inputs are exact, so their
// order is free; the groups are added in fp32, in order.
// Included by isa_*.cpp after simd.h.

// sums[vector][row] over one group of inputs.
template <int kRows, bool kAhead>
SWIFTSPEC_INLINE void add_group(const uint8_t* panel, const int8_t* a, int64_t step,
                                const uint8_t* ahead, I32 (&sums)[2][kRows]) {
  for (int k = 0; k < kGroup; k += 4) {
    SWIFTSPEC_UNROLL
    for (int r = 0; r < kRows; r++) {
      const int32_t four = *reinterpret_cast<const LooseInt*>(a + 4 * r);
      sums[0][r] = dot_add(sums[0][r], panel, four);
      sums[1][r] = dot_add(sums[1][r], panel + 4 * kLanes, four);
    }
    if (kAhead) {
      __builtin_prefetch(ahead, 0, 2);
      __builtin_prefetch(ahead + 64, 0, 2);
      ahead += 4 * kPanel;
    }
    panel += 4 * kPanel;
    a += step;
  }
}

// Rows [first, first + kRows) of a block, times both vectors of 16 channels. The sums stay in
// registers; each activation is fetched once for both vectors.
template <int kRows, bool kAhead>
static void multiply_rows(const uint8_t* panel, const float* scales, int depth,
                          const QuantisedBlock& block, int first, const uint8_t* ahead,
                          float* out) {
  F32 totals[2][kRows];
  SWIFTSPEC_UNROLL
  for (int r = 0; r < kRows; r++) totals[0][r] = totals[1][r] = broadcast(0.0f);
  const int8_t* a = block.values + 4 * first;
  for (int group = 0; group < depth / kGroup; group++) {
    const int32_t* corrections = block.corrections + group * block.rows + first;
    const float* group_scales = block.scales + group * block.rows + first;
    I32 sums[2][kRows];
    SWIFTSPEC_UNROLL
    for (int r = 0; r < kRows; r++) sums[0][r] = sums[1][r] = broadcast_int(corrections[r]);
    add_group<kRows, kAhead>(panel, a, 4 * block.rows, ahead, sums);
    SWIFTSPEC_UNROLL
    for (int r = 0; r < kRows; r++) {
      const F32 scale = broadcast(group_scales[r]);
      totals[0][r] = multiply_add(to_float(sums[0][r]), scale, totals[0][r]);
      totals[1][r] = multiply_add(to_float(sums[1][r]), scale, totals[1][r]);
    }
    panel += kGroup * kPanel;
    a += kGroup * block.rows;
    if (kAhead) ahead += kGroup * kPanel;
  }
  SWIFTSPEC_UNROLL
  for (int v = 0; v < 2; v++) {
    const F32 channels = load(scales + kLanes * v);
    SWIFTSPEC_UNROLL
    for (int r = 0; r < kRows; r++) {
      store(out + kPanel * (first + r) + kLanes * v, totals[v][r] * channels);
    }
  }
}

using MultiplyRows = void (*)(const uint8_t*, const float*, int, const QuantisedBlock&, int,
                              const uint8_t*, float*);

template <int... kRows>
static MultiplyRows choose_rows(int rows, bool ahead, std::integer_sequence<int, kRows...>) {
  static const MultiplyRows plain[] = {multiply_rows<kRows + 1, false>...};
  static const MultiplyRows fetching[] = {multiply_rows<kRows + 1, true>...};
  return ahead ? fetching[rows - 1] : plain[rows - 1];
}

// More than kRowsAtOnce rows have too many accumulators for the registers; the later ones take the
// panel from the cache.
static void multiply_panel(const uint8_t* panel, const float* scales, int depth,
                           const QuantisedBlock& block, const uint8_t* ahead, float* out) {
  const auto counts = std::make_integer_sequence<int, kRowsAtOnce>();
  int passes = (block.rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (int first = 0; first < block.rows; passes--) {
    const int rows = (block.rows - first + passes - 1) / passes;
    choose_rows(rows, ahead != nullptr, counts)(panel, scales, depth, block, first, ahead, out);
    first += rows;
    ahead = nullptr;
  }
}
