// AMX on top of AVX-512 (Sapphire Rapids on): an instruction multiplies and adds whole tiles of int8.
// One row, for which tiles are no gain, runs as in isa_amx_int8.cpp.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "isa.h"
#include "kernel_table.h"

// From here to the end of the file the compiler may use these instructions, whatever its flags.
#if defined(__clang__)
#pragma clang attribute push(                                                              \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,amx-tile,amx-int8"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,amx-tile,amx-int8")
// GCC 12 warns about its own header's _mm512_undefined_ps.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace swiftspec {
namespace amx_int8 {

#include "simd.h"

#include "simd_avx512.h"

constexpr int kRowsAtOnce = 8;  // rows whose sums fit into the registers
constexpr int kQueries = 12;    // queries that share a pass over keys or values

#include "kernels_elementwise.h"
#include "kernels_linear.h"
#include "kernels_tiles.h"
#include "kernels_attention.h"
#include "kernels_cache.h"
#include "kernels_selection.h"

}  // namespace amx_int8

const KernelTable kAmxInt8Kernels = {
    "amx-int8",
    amx_int8::enter,
    amx_int8::leave,
    amx_int8::multiply_panel_by_tiles,
    amx_int8::quantise_row_for_tiles,
    amx_int8::normalise_row,
    amx_int8::rotate_head,
    amx_int8::gate_panel,
    amx_int8::attend_chunk,
    amx_int8::select_top,
    amx_int8::sum_exponentials,
    amx_int8::gather_keys,
    amx_int8::combine_chunks,
};

}  // namespace swiftspec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__
