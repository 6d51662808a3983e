// One model: its weights (not owned), its threads and the scratch memory of a forward pass.
#pragma once

#include "kernel_table.h"
#include "kv_cache.h"
#include "storage.h"
#include "row_plan.h"
#include "shape.h"
#include "thread_pool.h"
#include "work_share.h"

namespace swiftspec {

// Rows as int8, in blocks of 16 rows.
struct QuantisedRows {
  AlignedBuffer<int8_t> values;
  AlignedBuffer<float> scales;
  AlignedBuffer<int32_t> corrections;

  bool reserve(int rows, int width);
  // The block that starts at row `first`, of `rows` in all.
  QuantisedBlock block(int first, int rows, int width) const;
  QuantisedRow row(int index, int rows, int width);
};

// Memory of partial softmaxes.
struct PartialBuffer {
  AlignedBuffer<float> maxima, sums, products;

  bool reserve(size_t entries, int width);
  AttentionPartial at(size_t entry, int width);
};

// What a thread needs for itself.
struct ThreadScratch {
  AlignedBuffer<float> row;     // one row of the widest input of a linear layer
  AlignedBuffer<float> panel;   // [16][32]
  AlignedBuffer<float> head;    // [16][channels of a head's panels]
  AlignedBuffer<float> scores;  // [16 * group][128]
  PartialBuffer partials;       // prefill: all chunks of 16 rows of one key/value head
  QuantisedRows rows;           // few rows: every thread quantises them for itself
};

class Model {
 public:
  // False if there is no memory, or no thread.
  bool start(const Shape& shape, const SwiftspecWeights& weights, int threads,
             const KernelTable& kernels);
  const Shape& shape() const { return shape_; }
  const KernelTable& kernels() const { return *kernels_; }
  // Runs the plan's rows; `logits` is [rows from plan.first_logits on][head_rows]. False if there is no
  // memory; the cache is as before then.
  bool run(const RowPlan& plan, KvCache& cache, float* logits);

 private:
  friend class ForwardPass;

  bool reserve_scratch(ThreadScratch& own, int width);
  bool reserve_partials(const RowPlan& plan);

  Shape shape_;
  SwiftspecWeights weights_{};
  AlignedBuffer<SwiftspecLayer> layers_;
  const KernelTable* kernels_ = nullptr;
  ThreadPool pool_;

  AlignedBuffer<float> residual_;   // [rows][hidden]
  AlignedBuffer<float> queries_;    // [kv head][rows][group][head width]
  AlignedBuffer<float> attention_;  // [rows][heads][head width], prefill only
  AlignedBuffer<float> gated_;      // [rows][ff]
  QuantisedRows rows_;              // many rows: shared by all threads
  PartialBuffer partials_;          // few rows: [kv head][chunk][rows * group]
  AlignedBuffer<Counter> counters_;  // one for each phase of a pass
  ThreadScratch scratch_[kMaxThreads];
};

}  // namespace swiftspec
