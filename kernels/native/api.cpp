#include "api.h"

#include "isa.h"
#include "model.h"

using swiftspec::KvCache;
using swiftspec::Model;
using swiftspec::RowPlan;
using swiftspec::Shape;

namespace {

#if !defined(SWIFTSPEC_SOURCE_DIGEST)
#define SWIFTSPEC_SOURCE_DIGEST ""
#endif
#define SWIFTSPEC_TEXT_OF(x) #x
#define SWIFTSPEC_TEXT(x) SWIFTSPEC_TEXT_OF(x)
#if defined(__clang__)
constexpr char kCompiler[] = "clang " SWIFTSPEC_TEXT(__clang_major__) "." SWIFTSPEC_TEXT(__clang_minor__);
#elif defined(__GNUC__)
constexpr char kCompiler[] = "gcc " SWIFTSPEC_TEXT(__GNUC__) "." SWIFTSPEC_TEXT(__GNUC_MINOR__);
#else
constexpr char kCompiler[] = "unknown compiler";
#endif

bool tokens_valid(const Shape& shape, const int32_t* tokens, int rows) {
  for (int i = 0; i < rows; i++) {
    if (tokens[i] < 0 || tokens[i] >= shape.vocab) return false;
  }
  return true;
}

bool fits(const Shape& shape, const KvCache& cache, int rows) {
  const int room = cache.capacity() < shape.context ? cache.capacity() : shape.context;
  return rows <= room - cache.length();
}

int32_t append(Model& model, KvCache& cache, const int32_t* tokens, int rows, int32_t wanted,
               float* logits) {
  const int32_t width = model.shape().head_rows, before = cache.length();
  for (int done = 0; done < rows;) {
    const int some = rows - done < swiftspec::kMaxRows ? rows - done : swiftspec::kMaxRows;
    RowPlan plan;
    plan.set_chain(tokens + done, some, cache.length());
    const bool last = done + some == rows;
    plan.first_logits = wanted == kAllLogits ? 0 : wanted == kLastLogits && last ? some - 1 : some;
    if (!model.run(plan, cache, logits)) {
      cache.truncate(before);
      return kOutOfMemory;
    }
    if (wanted == kAllLogits) logits += static_cast<size_t>(some) * width;
    cache.advance(some);
    done += some;
  }
  return kOk;
}

}  // namespace

int32_t swiftspec_abi_version() { return kAbiVersion; }
const char* swiftspec_source_digest() { return SWIFTSPEC_SOURCE_DIGEST; }
const char* swiftspec_compiler() { return kCompiler; }
const char* swiftspec_best_isa() { return swiftspec::best_kernels().name; }
int32_t swiftspec_has_isa(const char* isa) { return swiftspec::find_kernels(isa) != nullptr; }

const void* swiftspec_kernels(const char* isa) { return swiftspec::find_kernels(isa); }

int32_t swiftspec_top_k(const void* kernels, const float* logits, int32_t rows, int32_t n,
                        int32_t k, int32_t* ids, float* values, float* sums) {
  const auto& table = *static_cast<const swiftspec::KernelTable*>(kernels);
  if (k < 1 || k > n) return kBadArgument;
  for (int row = 0; row < rows; row++, logits += n, ids += k, values += k) {
    if (!table.select_top(logits, n, k, values, ids)) return kBadArgument;
    sums[row] = table.sum_exponentials(logits, n, values[0]);
  }
  return kOk;
}

void* swiftspec_model_create(const SwiftspecShape* shape, const SwiftspecWeights* weights,
                             int32_t threads, const char* isa) {
  const Shape sizes(*shape);
  const swiftspec::KernelTable* kernels = swiftspec::find_kernels(isa);
  if (!sizes.valid() || kernels == nullptr) return nullptr;
  if (threads < 1 || threads > swiftspec::kMaxThreads) return nullptr;
  return swiftspec::create<Model>(sizes, *weights, threads, *kernels);
}

void swiftspec_model_destroy(void* model) {
  swiftspec::destroy(static_cast<Model*>(model));
}

uint64_t swiftspec_cache_bytes(const void* model, int32_t capacity) {
  return KvCache::bytes(static_cast<const Model*>(model)->shape(), capacity);
}

void* swiftspec_cache_create(const void* model, int32_t capacity) {
  if (capacity < 1) return nullptr;
  const Model& runner = *static_cast<const Model*>(model);
  return swiftspec::create<KvCache>(runner.shape(), capacity, runner.kernels());
}

void swiftspec_cache_destroy(void* cache) {
  swiftspec::destroy(static_cast<KvCache*>(cache));
}

int32_t swiftspec_cache_length(const void* cache) {
  return static_cast<const KvCache*>(cache)->length();
}

int32_t swiftspec_cache_pending(const void* cache) {
  return static_cast<const KvCache*>(cache)->pending();
}

int32_t swiftspec_cache_read(void* cache, int32_t layer, int32_t pending, int32_t row, float* keys,
                             float* values) {
  KvCache& kv = *static_cast<KvCache*>(cache);
  if (layer < 0 || layer >= kv.layers()) return kBadArgument;
  if (row < 0 || row >= (pending != 0 ? kv.pending() : kv.length())) return kBadArgument;
  kv.read(layer, pending != 0, row, keys, values);
  return kOk;
}

int32_t swiftspec_append(void* model, void* cache, const int32_t* tokens, int32_t rows,
                         int32_t wanted, float* logits) {
  Model& runner = *static_cast<Model*>(model);
  KvCache& kv = *static_cast<KvCache*>(cache);
  if (rows < 1 || !tokens_valid(runner.shape(), tokens, rows)) return kBadArgument;
  if (!fits(runner.shape(), kv, rows)) return kDoesNotFit;
  return append(runner, kv, tokens, rows, wanted, logits);
}

int32_t swiftspec_grow(void* model, void* cache, const int32_t* tokens, const int32_t* parents,
                       int32_t rows, int32_t fresh, float* logits) {
  Model& runner = *static_cast<Model*>(model);
  KvCache& kv = *static_cast<KvCache*>(cache);
  const int pending = fresh != 0 ? 0 : kv.pending();
  if (rows < 1 || rows > swiftspec::kMaxTreeRows) return kBadArgument;
  if (!tokens_valid(runner.shape(), tokens, rows)) return kBadArgument;
  for (int i = 0; i < rows; i++) {
    if (parents[i] < -1 || parents[i] >= pending + i) return kBadArgument;
  }
  if (pending + rows > swiftspec::kMaxPending) return kTreeFull;
  RowPlan plan;
  if (!plan.set_tree(tokens, parents, rows, kv.length(), kv.parents(), pending)) return kTreeTooDeep;
  if (!fits(runner.shape(), kv, plan.longest - kv.length())) return kDoesNotFit;
  if (!runner.run(plan, kv, logits)) return kOutOfMemory;
  kv.set_pending(parents, pending, rows);
  return kOk;
}

int32_t swiftspec_reroot(void* cache, const int32_t* path, int32_t rows, const int32_t* keep,
                         int32_t kept) {
  return static_cast<KvCache*>(cache)->reroot(path, rows, keep, kept) ? kOk : kBadArgument;
}

int32_t swiftspec_truncate(void* cache, int32_t length) {
  return static_cast<KvCache*>(cache)->truncate(length) ? kOk : kBadArgument;
}
