#include "model.h"

#include <algorithm>

#include "forward.h"

namespace swiftspec {

void QuantisedRows::reserve(int rows, int width) {
  values.ensure(static_cast<size_t>(rows) * width);
  scales.ensure(static_cast<size_t>(rows) * (width / kGroup));
  corrections.ensure(static_cast<size_t>(rows) * (width / kGroup));
}

QuantisedBlock QuantisedRows::block(int first, int rows, int width) const {
  const size_t group = static_cast<size_t>(first) * (width / kGroup);
  return {values.data() + static_cast<size_t>(first) * width, scales.data() + group,
          corrections.data() + group, std::min(rows - first, kBlockRows)};
}

QuantisedRow QuantisedRows::row(int index, int rows, int width) {
  const int first = index / kBlockRows * kBlockRows, within = index - first;
  const size_t group = static_cast<size_t>(first) * (width / kGroup) + within;
  return {values.data() + static_cast<size_t>(first) * width + 4 * within, scales.data() + group,
          corrections.data() + group, std::min(rows - first, kBlockRows)};
}

void PartialBuffer::reserve(size_t entries, int width) {
  maxima.ensure(entries);
  sums.ensure(entries);
  products.ensure(entries * width);
}

AttentionPartial PartialBuffer::at(size_t entry, int width) {
  return {maxima.data() + entry, sums.data() + entry, products.data() + entry * width};
}

Model::Model(const Shape& shape, const SwiftspecWeights& weights, int threads,
             const KernelTable& kernels)
    : shape_(shape),
      weights_(weights),
      layers_(weights.layers, weights.layers + shape.layers),
      kernels_(kernels),
      pool_(threads),
      residual_(static_cast<size_t>(kMaxRows) * shape.hidden_width()),
      queries_(static_cast<size_t>(kMaxRows) * shape.heads * shape.head_width()),
      attention_(static_cast<size_t>(kMaxRows) * shape.attention_width()),
      gated_(static_cast<size_t>(kMaxRows) * shape.ff_width()),
      counters_(ForwardPass::phases(shape)),
      scratch_(threads) {
  weights_.layers = layers_.data();
  const int width =
      std::max({shape.hidden_width(), shape.attention_width(), shape.ff_width()});
  rows_.reserve(kMaxRows, width);
  for (ThreadScratch& own : scratch_) {
    own.row.ensure(width);
    own.panel.ensure(kBlockRows * kPanel);
    own.head.ensure(kBlockRows * shape.head_panels() * kPanel);
    own.scores.ensure(static_cast<size_t>(kBlockRows) * shape.group() * kChunk);
    own.rows.reserve(ForwardPass::kFewRows, width);
  }
}

void Model::run(const RowPlan& plan, KvCache& cache, float* logits) {
  const size_t chunks = (plan.longest + kChunk - 1) / kChunk;
  if (plan.to_tail || plan.rows() <= kBlockRows) {
    partials_.reserve(chunks * plan.rows() * shape_.heads, shape_.head_width());
  } else {
    for (ThreadScratch& own : scratch_) {
      own.partials.reserve(chunks * kBlockRows * shape_.group(), shape_.head_width());
    }
  }
  for (Counter& counter : counters_) counter.taken.store(0, std::memory_order_relaxed);
  ForwardPass pass(*this, plan, cache, logits);
  pool_.run([](void* context, int thread) { static_cast<ForwardPass*>(context)->run(thread); },
            &pass);
}

}  // namespace swiftspec
