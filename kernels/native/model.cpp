#include "model.h"

#include <algorithm>

#include "forward.h"

namespace swiftspec {

bool QuantisedRows::reserve(int rows, int width) {
  // Kernels may read whole tiles behind the last row.
  const size_t count = static_cast<size_t>(rows + kBlockRows) * width;
  return values.reserve(count) && scales.reserve(count / kGroup) &&
         corrections.reserve(count / kGroup);
}

QuantisedBlock QuantisedRows::block(int first, int rows, int width) const {
  const size_t group = static_cast<size_t>(first) * (width / kGroup);
  return {values.data() + static_cast<size_t>(first) * width, scales.data() + group,
          corrections.data() + group, std::min(rows - first, kBlockRows)};
}

QuantisedRow QuantisedRows::row(int index, int rows, int width) {
  const int first = index / kBlockRows * kBlockRows;
  const size_t group = static_cast<size_t>(first) * (width / kGroup);
  return {values.data() + static_cast<size_t>(first) * width, scales.data() + group,
          corrections.data() + group, std::min(rows - first, kBlockRows), index - first};
}

bool PartialBuffer::reserve(size_t entries, int width) {
  return maxima.reserve(entries) && sums.reserve(entries) && products.reserve(entries * width);
}

AttentionPartial PartialBuffer::at(size_t entry, int width) {
  return {maxima.data() + entry, sums.data() + entry, products.data() + entry * width};
}

bool Model::start(const Shape& shape, const SwiftspecWeights& weights, int threads,
                  const KernelTable& kernels) {
  shape_ = shape;
  weights_ = weights;
  kernels_ = &kernels;
  if (!layers_.reserve(shape.layers)) return false;
  std::copy(weights.layers, weights.layers + shape.layers, layers_.data());
  weights_.layers = layers_.data();
  const int width =
      std::max(shape.hidden_width(), std::max(shape.attention_width(), shape.ff_width()));
  const size_t rows = kMaxRows;
  if (!residual_.reserve(rows * shape.hidden_width()) ||
      !queries_.reserve(rows * shape.heads * shape.head_width()) ||
      !attention_.reserve(rows * shape.attention_width()) ||
      !gated_.reserve(rows * shape.ff_width()) || !rows_.reserve(kMaxRows, width) ||
      !counters_.reserve(ForwardPass::phases(shape))) {
    return false;
  }
  for (int i = 0; i < threads; i++) {
    if (!reserve_scratch(scratch_[i], width)) return false;
  }
  return pool_.start(threads);
}

bool Model::reserve_scratch(ThreadScratch& own, int width) {
  return own.row.reserve(width) && own.panel.reserve(kBlockRows * kPanel) &&
         own.head.reserve(kBlockRows * shape_.head_panels() * kPanel) &&
         own.scores.reserve(static_cast<size_t>(kBlockRows) * shape_.group() * kChunk) &&
         own.rows.reserve(ForwardPass::kFewRows, width);
}

bool Model::reserve_partials(const RowPlan& plan) {
  const size_t chunks = (plan.longest + kChunk - 1) / kChunk;
  if (plan.to_tail || plan.rows <= kBlockRows) {
    return partials_.reserve(chunks * plan.rows * shape_.heads, shape_.head_width());
  }
  for (int i = 0; i < pool_.threads(); i++) {
    const size_t entries = chunks * kBlockRows * shape_.group();
    if (!scratch_[i].partials.reserve(entries, shape_.head_width())) return false;
  }
  return true;
}

bool Model::run(const RowPlan& plan, KvCache& cache, float* logits) {
  if (!reserve_partials(plan)) return false;
  for (size_t i = 0; i < counters_.size(); i++) {
    counters_[i].taken.store(0, std::memory_order_relaxed);
  }
  ForwardPass pass(*this, plan, cache, logits);
  pool_.run([](void* context, int thread) { static_cast<ForwardPass*>(context)->run(thread); },
            &pass);
  cache.settled();
  return true;
}

}  // namespace swiftspec
