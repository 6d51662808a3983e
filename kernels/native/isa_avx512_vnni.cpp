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

#include "simd_avx512.h"

constexpr int kRowsAtOnce = 8;  // rows whose sums fit into the registers
constexpr int kQueries = 12;    // queries that share a pass over keys or values

#include "kernels_elementwise.h"
#include "kernels_linear.h"
#include "kernels_attention.h"
#include "kernels_cache.h"
#include "kernels_selection.h"

}  // namespace avx512_vnni

const KernelTable kAvx512VnniKernels = {
    "avx512-vnni",
    nullptr,
    nullptr,
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
