// Int8 matrix products. A panel holds 32 output channels as [depth / 4][2][16][4] bytes, each
// weight + 128, so that the unsigned-by-signed dot instruction applies; 128 * (sum of the row's
// activations) is taken off at the end. Integer sums are exact, so their order is free.
// Included by isa_*.cpp after simd.h.

// kRows rows times kVectors vectors of 16 channels; the accumulators stay in registers.
template <int kRows, int kVectors, bool kAhead>
SWIFTSPEC_INLINE void multiply_vectors(const uint8_t* panel, const float* scales, int depth,
                                       const QuantisedBlock& block, const uint8_t* ahead,
                                       float* out) {
  I32 sums[kVectors][kRows];
  SWIFTSPEC_UNROLL
  for (int v = 0; v < kVectors; v++) {
    SWIFTSPEC_UNROLL
    for (int r = 0; r < kRows; r++) sums[v][r] = broadcast_int(0);
  }
  const int8_t* a = block.values;
  for (int k = 0; k < depth; k += 4) {
    SWIFTSPEC_UNROLL
    for (int r = 0; r < kRows; r++) {
      const int32_t four = *reinterpret_cast<const LooseInt*>(a + 4 * r);
      SWIFTSPEC_UNROLL
      for (int v = 0; v < kVectors; v++) sums[v][r] = dot_add(sums[v][r], panel + 64 * v, four);
    }
    if (kAhead) {
      __builtin_prefetch(ahead, 0, 2);
      __builtin_prefetch(ahead + 64, 0, 2);
      ahead += 4 * kPanel;
    }
    panel += 4 * kPanel;
    a += 4 * kRows;
  }
  SWIFTSPEC_UNROLL
  for (int v = 0; v < kVectors; v++) {
    const F32 channel = load(scales + kLanes * v);
    SWIFTSPEC_UNROLL
    for (int r = 0; r < kRows; r++) {
      const F32 exact = to_float(sums[v][r] - broadcast_int(block.corrections[r]));
      store(out + kPanel * r + kLanes * v, exact * broadcast(block.scales[r]) * channel);
    }
  }
}

template <int kRows>
static void multiply_rows(const uint8_t* panel, const float* scales, int depth,
                          const QuantisedBlock& block, const uint8_t* ahead, float* out) {
  constexpr int kLines = kLanes * 4;
  if constexpr (kRows <= kTwoVectorRows) {
    if (ahead != nullptr) {
      multiply_vectors<kRows, 2, true>(panel, scales, depth, block, ahead, out);
    } else {
      multiply_vectors<kRows, 2, false>(panel, scales, depth, block, nullptr, out);
    }
  } else {
    // Too many accumulators for both halves at once; the second half comes from the cache.
    if (ahead != nullptr) {
      multiply_vectors<kRows, 1, true>(panel, scales, depth, block, ahead, out);
    } else {
      multiply_vectors<kRows, 1, false>(panel, scales, depth, block, nullptr, out);
    }
    multiply_vectors<kRows, 1, false>(panel + kLines, scales + kLanes, depth, block, nullptr,
                                      out + kLanes);
  }
}

static void multiply_panel(const uint8_t* panel, const float* scales, int depth,
                           const QuantisedBlock& block, const uint8_t* ahead, float* out) {
  using Function = void (*)(const uint8_t*, const float*, int, const QuantisedBlock&,
                            const uint8_t*, float*);
  static const Function kByRows[kBlockRows] = {
      multiply_rows<1>,  multiply_rows<2>,  multiply_rows<3>,  multiply_rows<4>,
      multiply_rows<5>,  multiply_rows<6>,  multiply_rows<7>,  multiply_rows<8>,
      multiply_rows<9>,  multiply_rows<10>, multiply_rows<11>, multiply_rows<12>,
      multiply_rows<13>, multiply_rows<14>, multiply_rows<15>, multiply_rows<16>,
  };
  kByRows[block.rows - 1](panel, scales, depth, block, ahead, out);
}
