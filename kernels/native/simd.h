// Vectors of 16 values as the compiler's own vector types, which every target can compile.
// An isa_*.cpp includes this inside its namespace, after switching the target on and before the
// kernels_*.h files; it adds the operations that the types cannot express well:
//   F32 multiply_add(F32 a, F32 b, F32 c)   a * b + c
//   F32 maximum(F32 a, F32 b)
//   I32 dot_add(I32 sum, const uint8_t* weights, int32_t four)
//                                           sum[i] += weights[4 i .. 4 i + 3] . the bytes of four
//   float sum_lanes(F32 v)                  in a fixed order: halves, quarters, ...
//   int32_t sum_lanes_int(I32 v)
//   float max_lanes(F32 v)
// Everything is inlined, so that no vector crosses a call between targets.

#define SWIFTSPEC_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define SWIFTSPEC_UNROLL _Pragma("unroll")
#else
#define SWIFTSPEC_UNROLL _Pragma("GCC unroll 32")
#endif

typedef float F32 __attribute__((vector_size(64)));
typedef int32_t I32 __attribute__((vector_size(64)));
typedef uint32_t U32 __attribute__((vector_size(64)));
typedef uint16_t U16 __attribute__((vector_size(32)));
typedef int8_t I8 __attribute__((vector_size(16)));

// Memory of any alignment and type.
typedef float LooseF32 __attribute__((vector_size(64), aligned(1), may_alias));
typedef uint16_t LooseU16 __attribute__((vector_size(32), aligned(1), may_alias));
typedef int32_t LooseI32 __attribute__((vector_size(64), aligned(1), may_alias));
typedef int32_t LooseInt __attribute__((aligned(1), may_alias));

SWIFTSPEC_INLINE I32 load_int(const int32_t* p) { return *reinterpret_cast<const LooseI32*>(p); }
SWIFTSPEC_INLINE F32 load(const float* p) { return *reinterpret_cast<const LooseF32*>(p); }
SWIFTSPEC_INLINE void store(float* p, F32 v) { *reinterpret_cast<LooseF32*>(p) = v; }
SWIFTSPEC_INLINE U16 load_u16(const uint16_t* p) { return *reinterpret_cast<const LooseU16*>(p); }
SWIFTSPEC_INLINE void store_u16(uint16_t* p, U16 v) { *reinterpret_cast<LooseU16*>(p) = v; }
SWIFTSPEC_INLINE F32 broadcast(float x) {
  return F32{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
SWIFTSPEC_INLINE I32 broadcast_int(int32_t x) {
  return I32{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
SWIFTSPEC_INLINE F32 to_float(I32 v) { return __builtin_convertvector(v, F32); }
SWIFTSPEC_INLINE I32 to_int(F32 v) { return __builtin_convertvector(v, I32); }
SWIFTSPEC_INLINE F32 magnitude(F32 v) { return (F32)((I32)v & broadcast_int(0x7fffffff)); }

// bfloat16 is the upper half of an fp32.
SWIFTSPEC_INLINE F32 load_bf16(const bf16* p) {
  return (F32)(__builtin_convertvector(*reinterpret_cast<const LooseU16*>(p), U32) << 16);
}

// To the nearest integer, ties to even, for |v| < 2^22: the addition rounds.
SWIFTSPEC_INLINE F32 nearest(F32 v) {
  const F32 magic = broadcast(12582912.0f);
  return (v + magic) - magic;
}
