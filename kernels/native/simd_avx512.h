// What simd.h asks of an instruction set, by AVX-512 with VNNI: 16 lanes are one register.
// Included after it.

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

// Halves of a register, lower and upper.
SWIFTSPEC_INLINE __m256 lower(F32 v) { return _mm512_castps512_ps256((__m512)v); }
SWIFTSPEC_INLINE __m256 upper(F32 v) { return _mm512_extractf32x8_ps((__m512)v, 1); }

SWIFTSPEC_INLINE float sum_lanes(F32 v) {
  const __m256 half = _mm256_add_ps(lower(v), upper(v));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

SWIFTSPEC_INLINE float max_lanes(F32 v) {
  const __m256 half = _mm256_max_ps(lower(v), upper(v));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

SWIFTSPEC_INLINE int32_t sum_lanes_int(I32 v) { return _mm512_reduce_add_epi32((__m512i)v); }
