// The C interface of the shared library: what ctypes loads. Knows plain pointers and numbers only;
// shapes of the arrays are documented in packing.py. All functions are to be called from one
// thread at a time for each model.
#pragma once

#include <cstdint>

#if defined(_WIN32)
#define SWIFTSPEC_EXPORT extern "C" __declspec(dllexport)
#else
#define SWIFTSPEC_EXPORT extern "C" __attribute__((visibility("default")))
#endif

// Grows whenever a structure or a function here changes; library.py refuses another number.
constexpr int32_t kAbiVersion = 4;

struct SwiftspecShape {
  int32_t hidden, layers, heads, kv_heads, head_dim, ff, vocab;
  int32_t context;    // rows of the rotary tables
  int32_t head_rows;  // of the LM head: logits of a row; vocab is the embedding's rows
  float norm_eps;
};

struct SwiftspecLinear {
  const uint8_t* panels;  // [out/32][in/4][2][16][4], weight + 128
  const float* scales;    // [out]
};

struct SwiftspecLayer {
  SwiftspecLinear qkv, output, gate_up, down;
  const float* attention_norm;  // [hidden]
  const float* ff_norm;         // [hidden]
  const float* qkv_bias;        // [out of qkv] or null
  const float* q_norm;          // [head_dim] or null
  const float* k_norm;          // [head_dim] or null
};

struct SwiftspecWeights {
  SwiftspecLinear embedding, head;
  const float* final_norm;  // [hidden]
  const float* cosines;     // [context][head_dim / 2]
  const float* sines;       // [context][head_dim / 2]
  const SwiftspecLayer* layers;
};

// Rows whose logits are wanted.
enum SwiftspecLogits : int32_t { kNoLogits = 0, kLastLogits = 1, kAllLogits = 2 };

// What a function answers; library.py turns these into exceptions.
enum SwiftspecStatus : int32_t {
  kOk = 0,
  kBadArgument = 1,
  kDoesNotFit = 2,
  kOutOfMemory = 3,
  kTreeFull = 4,     // the pending tree has no room for the rows
  kTreeTooDeep = 5,  // a path of the pending tree would have too many rows
};

SWIFTSPEC_EXPORT int32_t swiftspec_abi_version();
// What build.py's source_digest said of the sources; empty if it did not build them.
SWIFTSPEC_EXPORT const char* swiftspec_source_digest();
// The compiler, for people: "gcc 12.2.0".
SWIFTSPEC_EXPORT const char* swiftspec_compiler();
// The fastest instruction set of this build that this processor and system support.
SWIFTSPEC_EXPORT const char* swiftspec_best_isa();
// Whether `isa` is in this build and runs here.
SWIFTSPEC_EXPORT int32_t swiftspec_has_isa(const char* isa);

// The k largest of each row of logits [rows][n], descending, of equals the one that comes first:
// ids and values [rows][k]; and [rows] sums of exp(logit - largest).
// A bad argument is a NaN, or a k that is not 1 to n.
SWIFTSPEC_EXPORT int32_t swiftspec_top_k(const void* kernels, const float* logits, int32_t rows,
                                         int32_t n, int32_t k, int32_t* ids, float* values,
                                         float* sums);
// The kernels of an instruction set, for swiftspec_top_k; null if it does not run here.
SWIFTSPEC_EXPORT const void* swiftspec_kernels(const char* isa);

// Copies shape and weight structures, not the arrays, which must outlive the model. Null if the
// shape or `isa` cannot be served.
SWIFTSPEC_EXPORT void* swiftspec_model_create(const SwiftspecShape* shape,
                                              const SwiftspecWeights* weights, int32_t threads,
                                              const char* isa);
SWIFTSPEC_EXPORT void swiftspec_model_destroy(void* model);

SWIFTSPEC_EXPORT uint64_t swiftspec_cache_bytes(const void* model, int32_t capacity);
SWIFTSPEC_EXPORT void* swiftspec_cache_create(const void* model, int32_t capacity);
SWIFTSPEC_EXPORT void swiftspec_cache_destroy(void* cache);
SWIFTSPEC_EXPORT int32_t swiftspec_cache_length(const void* cache);
// Rows of the pending tree.
SWIFTSPEC_EXPORT int32_t swiftspec_cache_pending(const void* cache);
// Key and value of one position, or one pending row, as fp32 [kv heads][padded head size].
SWIFTSPEC_EXPORT int32_t swiftspec_cache_read(void* cache, int32_t layer, int32_t pending,
                                              int32_t row, float* keys, float* values);

// Commits `rows` tokens after the prefix; `logits` is [1][head_rows] or [rows][head_rows], by
// `wanted`.
SWIFTSPEC_EXPORT int32_t swiftspec_append(void* model, void* cache, const int32_t* tokens,
                                          int32_t rows, int32_t wanted, float* logits);
// Runs rows that the pending tree grows by, or, with `fresh`, that replace it; `logits` is
// [rows][head_rows]. parents[i] is a row of the pending tree, earlier rows of this call included, or -1
// for the prefix's end.
SWIFTSPEC_EXPORT int32_t swiftspec_grow(void* model, void* cache, const int32_t* tokens,
                                        const int32_t* parents, int32_t rows, int32_t fresh,
                                        float* logits);
// Moves pending rows, a root-to-node path, into the prefix, keeps the pending rows `keep`
// (ascending) in this order and drops the others.
SWIFTSPEC_EXPORT int32_t swiftspec_reroot(void* cache, const int32_t* path, int32_t rows,
                                          const int32_t* keep, int32_t kept);
SWIFTSPEC_EXPORT int32_t swiftspec_truncate(void* cache, int32_t length);
