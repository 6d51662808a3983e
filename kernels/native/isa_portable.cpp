// The portable instruction set: whatever the compiler's baseline for the machine is. Right on any
// 64-bit x86 (SSE2) and on Arm; not tuned.
#include <cstdint>
#include <utility>

#include "isa.h"
#include "kernel_table.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace swiftspec {
namespace portable {

#include "simd.h"

// No fused multiply-add: without the instruction it would be a slow library call.
SWIFTSPEC_INLINE F32 multiply_add(F32 a, F32 b, F32 c) { return a * b + c; }
SWIFTSPEC_INLINE F32 maximum(F32 a, F32 b) { return a > b ? a : b; }

#if defined(__SSE2__)

// Bytes 0 and 2, then 1 and 3, of each four as 16-bit pairs; pmaddwd adds the products exactly.
SWIFTSPEC_INLINE I32 dot_add(I32 sum, const uint8_t* weights, int32_t four) {
  const __m128i a = _mm_set1_epi32(four);
  const __m128i a02 = _mm_srai_epi16(_mm_slli_epi16(a, 8), 8), a13 = _mm_srai_epi16(a, 8);
  const __m128i low = _mm_set1_epi16(0xff);
  __m128i part[4];
  __builtin_memcpy(part, &sum, sizeof part);
  for (int i = 0; i < 4; i++) {
    const __m128i w = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + 16 * i));
    const __m128i even = _mm_madd_epi16(_mm_and_si128(w, low), a02);
    const __m128i odd = _mm_madd_epi16(_mm_srli_epi16(w, 8), a13);
    part[i] = _mm_add_epi32(part[i], _mm_add_epi32(even, odd));
  }
  __builtin_memcpy(&sum, part, sizeof part);
  return sum;
}

#else

SWIFTSPEC_INLINE I32 dot_add(I32 sum, const uint8_t* weights, int32_t four) {
  int8_t a[4];
  __builtin_memcpy(a, &four, sizeof a);
  for (int i = 0; i < kLanes; i++) {
    for (int j = 0; j < 4; j++) sum[i] += static_cast<int32_t>(weights[4 * i + j]) * a[j];
  }
  return sum;
}

#endif

SWIFTSPEC_INLINE float sum_lanes(F32 v) {
  float lane[16];
  store(lane, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; i++) lane[i] += lane[i + width];
  }
  return lane[0];
}

SWIFTSPEC_INLINE int32_t sum_lanes_int(I32 v) {
  int32_t total = 0;
  for (int i = 0; i < 16; i++) total += v[i];
  return total;
}

SWIFTSPEC_INLINE float max_lanes(F32 v) {
  float lane[16];
  store(lane, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; i++) lane[i] = lane[i + width] > lane[i] ? lane[i + width] : lane[i];
  }
  return lane[0];
}

SWIFTSPEC_INLINE U16 permute(U16 v, U16 lanes) {
  uint16_t values[kLanes], places[kLanes];
  store_u16(values, v);
  store_u16(places, lanes);
  for (int i = 0; i < kLanes; i++) places[i] = values[places[i]];
  return load_u16(places);
}

SWIFTSPEC_INLINE bool any_above(const float* x, F32 bound) {
  I32 within = load(x) <= bound;
  for (int i = 1; i < 4; i++) within &= load(x + i * kLanes) <= bound;
  int32_t all = -1;
  for (int i = 0; i < kLanes; i++) all &= within[i];
  return all == 0;
}

constexpr int kRowsAtOnce = 1;  // rows whose sums fit into the registers
constexpr int kQueries = 6;     // queries that share a pass over keys or values

#include "kernels_elementwise.h"
#include "kernels_linear.h"
#include "kernels_attention.h"
#include "kernels_cache.h"
#include "kernels_selection.h"

}  // namespace portable

const KernelTable kPortableKernels = {
    "portable",
    nullptr,
    nullptr,
    portable::multiply_panel,
    portable::quantise_row,
    portable::normalise_row,
    portable::rotate_head,
    portable::gate_panel,
    portable::attend_chunk,
    portable::select_top,
    portable::sum_exponentials,
    portable::gather_keys,
    portable::combine_chunks,
};

}  // namespace swiftspec
