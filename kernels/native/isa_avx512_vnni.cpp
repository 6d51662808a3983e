// AVX-512 with VNNI (Ice Lake and Zen 4 on): 32 registers of 16 lanes, and an instruction that
// multiplies and adds four int8 pairs a lane.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "isa.h"
#include "kernel_table.h"

// From here to the end of the file the compiler may use these instructions, whatever its flags.
#if defined(__clang__)
#pragma clang attribute push(                                                              \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")
// GCC 12 warns about its own header's _mm512_undefined_ps.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace swiftspec {
namespace avx512_vnni {

#include "simd.h"

SWIFTSPEC_INLINE F32 multiply_add(F32 a, F32 b, F32 c) {
  return (F32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

SWIFTSPEC_INLINE F32 maximum(F32 a, F32 b) {
  return (F32)_mm512_max_ps((__m512)a, (__m512)b);
}

SWIFTSPEC_INLINE I32 dot_add(I32 sum, const uint8_t* weights, int32_t four) {
  const __m512i w = _mm512_loadu_si512(weights);
  return (I32)_mm512_dpbusd_epi32((__m512i)sum, w, _mm512_set1_epi32(four));
}

SWIFTSPEC_INLINE U16 permute(U16 v, U16 lanes) {
  return (U16)_mm256_permutexvar_epi16((__m256i)lanes, (__m256i)v);
}

// Not (<=), so that NaN counts.
SWIFTSPEC_INLINE bool any_above(const float* x, F32 bound) {
  __mmask16 above = 0;
  SWIFTSPEC_UNROLL
  for (int i = 0; i < 4; i++) {
    above |= _mm512_cmp_ps_mask(_mm512_loadu_ps(x + i * kLanes), (__m512)bound, _CMP_NLE_UQ);
  }
  return above != 0;
}

constexpr int kRowsAtOnce = 8;  // rows whose sums fit into the registers

#include "kernels_elementwise.h"
#include "kernels_linear.h"
#include "kernels_attention.h"
#include "kernels_cache.h"
#include "kernels_selection.h"

}  // namespace avx512_vnni

const KernelTable kAvx512VnniKernels = {
    "avx512-vnni",
    avx512_vnni::multiply_panel,
    avx512_vnni::quantise_row,
    avx512_vnni::normalise_row,
    avx512_vnni::rotate_head,
    avx512_vnni::gate_panel,
    avx512_vnni::attend_chunk,
    avx512_vnni::select_top,
    avx512_vnni::sum_exponentials,
    avx512_vnni::gather_keys,
    avx512_vnni::combine_chunks,
};

}  // namespace swiftspec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__
