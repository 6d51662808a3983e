// Int8 matrix products by AMX tiles, for blocks of several rows: a group of 64 inputs is exactly the
// depth of a tile, and a panel's half the right operand as it lies in memory. Sums are exact, and
// groups are added in the same order as in kernels_linear.h, so the results have the same bits.
// Included by isa_amx_int8.cpp after kernels_linear.h.

constexpr int kTileRows = 5;  // fewer are quicker without tiles

// Tile registers; the intrinsics want plain numbers. Operands and sums of 16 rows, then of 8 rows,
// then right operands; two of each but the left ones, in turn.
#define SWIFTSPEC_SUMS_16 0
#define SWIFTSPEC_OTHER_SUMS_16 1
#define SWIFTSPEC_LEFT_16 2
#define SWIFTSPEC_SUMS_8 3
#define SWIFTSPEC_OTHER_SUMS_8 4
#define SWIFTSPEC_LEFT_8 5
#define SWIFTSPEC_RIGHT 6
#define SWIFTSPEC_OTHER_RIGHT 7

// As the processor reads it. Constant, because GCC's intrinsic does not say that it reads all of it.
struct TileShapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
alignas(64) static const TileShapes kTileShapes = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 8, 8, 8, 16, 16}};

static void enter() { _tile_loadconfig(&kTileShapes); }

static void leave() { _tile_release(); }

// sums[row][channel] of one group, for half a panel of 16 channels.
template <int kRows>
SWIFTSPEC_INLINE void multiply_tile(const int8_t* a, const uint8_t* half, int32_t* sums,
                                    bool other) {
  constexpr int kStride = 4 * kPanel;
  if (kRows == 16 && other) {
    _tile_loadd(SWIFTSPEC_LEFT_16, a, kGroup);
    _tile_loadd(SWIFTSPEC_OTHER_RIGHT, half, kStride);
    _tile_zero(SWIFTSPEC_OTHER_SUMS_16);
    _tile_dpbsud(SWIFTSPEC_OTHER_SUMS_16, SWIFTSPEC_LEFT_16, SWIFTSPEC_OTHER_RIGHT);
    _tile_stored(SWIFTSPEC_OTHER_SUMS_16, sums, 64);
  } else if (kRows == 16) {
    _tile_loadd(SWIFTSPEC_LEFT_16, a, kGroup);
    _tile_loadd(SWIFTSPEC_RIGHT, half, kStride);
    _tile_zero(SWIFTSPEC_SUMS_16);
    _tile_dpbsud(SWIFTSPEC_SUMS_16, SWIFTSPEC_LEFT_16, SWIFTSPEC_RIGHT);
    _tile_stored(SWIFTSPEC_SUMS_16, sums, 64);
  } else if (other) {
    _tile_loadd(SWIFTSPEC_OTHER_RIGHT, half, kStride);
    _tile_zero(SWIFTSPEC_OTHER_SUMS_8);
    _tile_dpbsud(SWIFTSPEC_OTHER_SUMS_8, SWIFTSPEC_LEFT_8, SWIFTSPEC_OTHER_RIGHT);
    _tile_stored(SWIFTSPEC_OTHER_SUMS_8, sums, 64);
  } else {
    _tile_loadd(SWIFTSPEC_LEFT_8, a, kGroup);
    _tile_loadd(SWIFTSPEC_RIGHT, half, kStride);
    _tile_zero(SWIFTSPEC_SUMS_8);
    _tile_dpbsud(SWIFTSPEC_SUMS_8, SWIFTSPEC_LEFT_8, SWIFTSPEC_RIGHT);
    _tile_stored(SWIFTSPEC_SUMS_8, sums, 64);
  }
}

// 8 rows with both halves of a panel, or 16 rows with one: 16 totals stay in registers.
template <int kRows>
static void multiply_half(const uint8_t* panel, const float* scales, int depth,
                          const QuantisedBlock& block, const uint8_t* ahead, float* out) {
  constexpr int kHalves = 16 / kRows;
  alignas(64) int32_t sums[2][16 * kLanes];  // two groups in turn
  F32 totals[kHalves][kRows];
  SWIFTSPEC_UNROLL
  for (int i = 0; i < 16; i++) totals[i / kRows][i % kRows] = broadcast(0.0f);
  const int8_t* a = block.values;
  for (int group = 0; group < depth / kGroup; group++) {
    int32_t* to = sums[group % 2];
    if (kHalves == 2) {
      multiply_tile<kRows>(a, panel, to, false);
      multiply_tile<kRows>(a, panel + 4 * kLanes, to + kRows * kLanes, true);
    } else {
      multiply_tile<kRows>(a, panel, to, group % 2 != 0);
    }
    for (int i = 0; ahead != nullptr && i < kGroup * kPanel; i += 64) {
      __builtin_prefetch(ahead + group * kGroup * kPanel + i, 0, 2);
    }
    const int32_t* corrections = block.corrections + group * block.rows;
    const float* group_scales = block.scales + group * block.rows;
    SWIFTSPEC_UNROLL
    for (int r = 0; r < kRows; r++) {
      const I32 correction = broadcast_int(corrections[r]);
      const F32 scale = broadcast(group_scales[r]);
      SWIFTSPEC_UNROLL
      for (int v = 0; v < kHalves; v++) {
        const I32 sum = load_int(to + (v * kRows + r) * kLanes) + correction;
        totals[v][r] = multiply_add(to_float(sum), scale, totals[v][r]);
      }
    }
    panel += kGroup * kPanel;
    a += kGroup * block.rows;
  }
  SWIFTSPEC_UNROLL
  for (int i = 0; i < 16; i++) {
    const int v = i / kRows, r = i % kRows;
    store(out + kPanel * r + kLanes * v, totals[v][r] * load(scales + kLanes * v));
  }
}

static void multiply_panel_by_tiles(const uint8_t* panel, const float* scales, int depth,
                                    const QuantisedBlock& block, const uint8_t* ahead, float* out) {
  if (block.rows < kTileRows) {
    multiply_panel(panel, scales, depth, block, ahead, out);
  } else if (block.rows <= 8) {
    multiply_half<8>(panel, scales, depth, block, ahead, out);
  } else {
    multiply_half<16>(panel, scales, depth, block, ahead, out);
    multiply_half<16>(panel + 4 * kLanes, scales + kLanes, depth, block, nullptr, out + kLanes);
  }
}

static void quantise_row_for_tiles(const float* x, int width, const QuantisedRow& to) {
  if (to.rows < kTileRows) {
    quantise_row(x, width, to);
  } else {
    quantise_to(x, width, to, to.values + kGroup * to.index, 4, kGroup * to.rows);
  }
}
