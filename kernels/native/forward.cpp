#include "forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace swiftspec {
namespace {

size_t panel_bytes(int width) { return static_cast<size_t>(kPanel) * width; }

// One token's embedding, [width] fp32, out of the panels that the LM head may share.
void read_embedding(const SwiftspecLinear& embedding, int token, int width, float* out) {
  const uint8_t* panel = embedding.panels + static_cast<size_t>(token / kPanel) * panel_bytes(width);
  const uint8_t* fours = panel + token % kPanel * 4;
  const float scale = embedding.scales[token];
  for (int k = 0; k < width; k += 4, fours += 4 * kPanel) {
    for (int i = 0; i < 4; i++) out[k + i] = static_cast<float>(fours[i] - 128) * scale;
  }
}

}  // namespace

ForwardPass::ForwardPass(Model& model, const RowPlan& plan, KvCache& cache, float* logits)
    : model_(model),
      shape_(model.shape_),
      kernels_(*model.kernels_),
      plan_(plan),
      cache_(cache),
      logits_(logits),
      rows_(plan.rows),
      threads_(model.pool_.threads()),
      chunks_((plan.longest + kChunk - 1) / kChunk) {}

int ForwardPass::phases(const Shape& shape) { return shape.layers * 5 + 1; }

void ForwardPass::run(int thread) {
  Walk walk{thread, 0, model_.scratch_[thread]};
  if (kernels_.enter != nullptr) kernels_.enter();
  embed(walk);
  model_.pool_.barrier();
  for (int layer = 0; layer < shape_.layers; layer++) {
    const SwiftspecLayer& weights = model_.layers_[layer];
    quantise_norm(walk, 0, weights.attention_norm);
    project_qkv(walk, layer);
    model_.pool_.barrier();
    attend(walk, layer);
    model_.pool_.barrier();
    quantise_attention(walk);
    add_to_residual(walk, weights.output, shape_.attention_width());
    model_.pool_.barrier();
    quantise_norm(walk, 0, weights.ff_norm);
    project_gate_up(walk, weights.gate_up);
    model_.pool_.barrier();
    quantise_gated(walk);
    add_to_residual(walk, weights.down, shape_.ff_width());
    model_.pool_.barrier();
  }
  if (plan_.first_logits < rows_) project_logits(walk);
  if (kernels_.leave != nullptr) kernels_.leave();
}

WorkShare ForwardPass::share(Walk& walk, int items) {
  return WorkShare(model_.counters_[walk.phase++], items, walk.thread, threads_);
}

void ForwardPass::embed(Walk& walk) {
  for (int row = walk.thread; row < rows_; row += threads_) {
    read_embedding(model_.weights_.embedding, plan_.tokens[row], shape_.hidden_width(),
                   residual(row));
  }
}

// --- quantising the input of a linear layer ------------------------------------------------------

// `input(row, buffer)` gives the fp32 row, in `buffer` or where it already is. With few rows every
// thread does all of them for itself; with many they are split, and a barrier follows.
template <class RowInput>
void ForwardPass::quantise(Walk& walk, int first, int width, RowInput input) {
  const bool alone = rows_ <= kFewRows;
  QuantisedRows& to = alone ? walk.scratch.rows : model_.rows_;
  const int rows = rows_ - first;
  for (int i = alone ? 0 : walk.thread; i < rows; i += alone ? 1 : threads_) {
    kernels_.quantise_row(input(first + i, walk.scratch.row.data()), width,
                          to.row(i, rows, width));
  }
  if (!alone) model_.pool_.barrier();
}

void ForwardPass::quantise_norm(Walk& walk, int first, const float* gain) {
  quantise(walk, first, shape_.hidden_width(), [&](int row, float* buffer) {
    std::fill(buffer + shape_.hidden, buffer + shape_.hidden_width(), 0.0f);
    kernels_.normalise_row(residual(row), gain, shape_.hidden, shape_.norm_eps, buffer);
    return buffer;
  });
}

void ForwardPass::quantise_attention(Walk& walk) {
  const int width = shape_.attention_width();
  const bool combined = !plan_.to_tail && rows_ > kBlockRows;
  quantise(walk, 0, width, [&](int row, float* buffer) {
    if (combined) return model_.attention_.data() + static_cast<size_t>(row) * width;
    combine_row(row, buffer);
    return buffer;
  });
}

void ForwardPass::quantise_gated(Walk& walk) {
  const int width = shape_.ff_width();
  quantise(walk, 0, width, [&](int row, float*) {
    return model_.gated_.data() + static_cast<size_t>(row) * width;
  });
}

// --- linear layers -------------------------------------------------------------------------------

// Where item `next` of a layer begins, to be fetched ahead; null if there is none.
const uint8_t* ForwardPass::ahead_of(const SwiftspecLinear& linear, int next, int panels,
                                     int width) {
  if (next < 0) return nullptr;
  return linear.panels + static_cast<size_t>(next) * panels * panel_bytes(width);
}

// Calls epilogue(panel, first row, rows, out[rows][32]) for every panel of the layer and every
// block of quantised rows.
template <class Epilogue>
void ForwardPass::multiply(Walk& walk, const SwiftspecLinear& linear, int panels, int width,
                           int first, Epilogue epilogue) {
  WorkShare work = share(walk, panels);
  const QuantisedRows& quantised_rows = quantised(walk);
  float* out = walk.scratch.panel.data();
  for (int panel; (panel = work.next()) >= 0;) {
    const uint8_t* ahead = ahead_of(linear, work.likely_after(panel), 1, width);
    const uint8_t* weights = linear.panels + static_cast<size_t>(panel) * panel_bytes(width);
    for (int start = 0; start < rows_ - first; start += kBlockRows) {
      const QuantisedBlock block = quantised_rows.block(start, rows_ - first, width);
      kernels_.multiply_panel(weights, linear.scales + panel * kPanel, width, block, ahead, out);
      epilogue(panel, first + start, block.rows, out);
      ahead = nullptr;
    }
  }
}

void ForwardPass::add_to_residual(Walk& walk, const SwiftspecLinear& linear, int width) {
  multiply(walk, linear, shape_.hidden_panels(), width, 0,
           [&](int panel, int first, int rows, const float* out) {
             for (int i = 0; i < rows; i++) {
               float* to = residual(first + i) + panel * kPanel;
               for (int c = 0; c < kPanel; c++) to[c] += out[i * kPanel + c];
             }
           });
}

void ForwardPass::project_gate_up(Walk& walk, const SwiftspecLinear& linear) {
  const int width = shape_.ff_width();
  multiply(walk, linear, shape_.ff_panels(), shape_.hidden_width(), 0,
           [&](int panel, int first, int rows, const float* out) {
             for (int i = 0; i < rows; i++) {
               float* gated = model_.gated_.data() + static_cast<size_t>(first + i) * width;
               kernels_.gate_panel(out + i * kPanel, gated + panel * kLanes);
             }
           });
}

void ForwardPass::project_logits(Walk& walk) {
  const int first_logits = plan_.first_logits;
  quantise_norm(walk, first_logits, model_.weights_.final_norm);
  multiply(walk, model_.weights_.head, shape_.logit_panels(), shape_.hidden_width(), first_logits,
           [&](int panel, int first, int rows, const float* out) {
             const int channels = std::min(kPanel, shape_.head_rows - panel * kPanel);
             for (int i = 0; i < rows; i++) {
               const size_t row = first + i - first_logits;
               std::memcpy(logits_ + row * shape_.head_rows + panel * kPanel, out + i * kPanel,
                           channels * sizeof(float));
             }
           });
}

// --- queries, keys and values --------------------------------------------------------------------

// One item is one head, so that its norm and rotation can follow while it is in the cache.
void ForwardPass::project_qkv(Walk& walk, int layer) {
  const SwiftspecLinear& linear = model_.layers_[layer].qkv;
  const int panels = shape_.head_panels(), width = shape_.hidden_width();
  const int channels = panels * kPanel;
  WorkShare work = share(walk, shape_.qkv_heads());
  const QuantisedRows& quantised_rows = quantised(walk);
  float* out = walk.scratch.panel.data();
  for (int head; (head = work.next()) >= 0;) {
    settle(layer, head);
    const uint8_t* ahead = ahead_of(linear, work.likely_after(head), panels, width);
    for (int first = 0; first < rows_; first += kBlockRows) {
      const QuantisedBlock block = quantised_rows.block(first, rows_, width);
      for (int p = 0; p < panels; p++) {
        const int panel = head * panels + p;
        const uint8_t* next = ahead == nullptr ? nullptr : ahead + p * panel_bytes(width);
        kernels_.multiply_panel(linear.panels + static_cast<size_t>(panel) * panel_bytes(width),
                                linear.scales + panel * kPanel, width, block, next, out);
        for (int i = 0; i < block.rows; i++) {
          std::memcpy(walk.scratch.head.data() + i * channels + p * kPanel, out + i * kPanel,
                      kPanel * sizeof(float));
        }
      }
      finish_head(walk, layer, head, first, block.rows);
      ahead = nullptr;
    }
  }
}

// Before anything else touches this layer's keys or values of a head.
void ForwardPass::settle(int layer, int head) {
  const int keys = shape_.heads, values = shape_.heads + shape_.kv_heads;
  if (head >= values) {
    cache_.settle_values(layer, head - values);
  } else if (head >= keys) {
    cache_.settle_keys(layer, head - keys);
  }
}

// Bias, norm, rotation; then queries to their buffer, keys and values to the cache.
void ForwardPass::finish_head(Walk& walk, int layer, int head, int first, int rows) {
  const SwiftspecLayer& weights = model_.layers_[layer];
  const int channels = shape_.head_panels() * kPanel, half = shape_.head_dim / 2;
  const int kv_head = head < shape_.heads ? head / shape_.group()
                                          : (head - shape_.heads) % shape_.kv_heads;
  const bool is_query = head < shape_.heads;
  const bool is_value = head >= shape_.heads + shape_.kv_heads;
  const float* gain = is_query ? weights.q_norm : weights.k_norm;
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
  for (int i = 0; i < rows; i++) {
    float* x = walk.scratch.head.data() + i * channels;
    const int row = first + i, position = plan_.positions[row];
    const int place = plan_.to_tail ? plan_.first_slot + row : position;
    if (weights.qkv_bias != nullptr) {
      for (int c = 0; c < channels; c++) x[c] += weights.qkv_bias[head * channels + c];
    }
    if (is_value) {
      cache_.store_value(layer, kv_head, plan_.to_tail, place, x);
      continue;
    }
    if (gain != nullptr) kernels_.normalise_row(x, gain, shape_.head_dim, shape_.norm_eps, x);
    kernels_.rotate_head(x, model_.weights_.cosines + static_cast<size_t>(position) * half,
                         model_.weights_.sines + static_cast<size_t>(position) * half, half);
    if (is_query) {
      float* to = query(kv_head, row) + head % shape_.group() * shape_.head_width();
      for (int d = 0; d < shape_.head_width(); d++) to[d] = x[d] * query_scale;
    } else {
      cache_.store_key(layer, kv_head, plan_.to_tail, place, x);
    }
  }
}

// --- attention -----------------------------------------------------------------------------------

AttentionBlock ForwardPass::attention_block(int layer, int kv_head, int first, int rows) {
  return {cache_.keys(layer, kv_head),
          cache_.values(layer, kv_head),
          cache_.tail_keys(layer, kv_head),
          cache_.tail_values(layer, kv_head),
          cache_.tail_stride(),
          query(kv_head, first),
          plan_.paths + first,
          rows,
          shape_.group(),
          shape_.head_width()};
}

void ForwardPass::attend(Walk& walk, int layer) {
  if (plan_.to_tail || rows_ <= kBlockRows) {
    attend_few(walk, layer);
  } else {
    attend_many(walk, layer);
  }
}

// An item is one chunk of one key/value head for all rows; combine_row joins the chunks later.
void ForwardPass::attend_few(Walk& walk, int layer) {
  const int width = shape_.head_width(), group = shape_.group();
  WorkShare work = share(walk, shape_.kv_heads * chunks_);
  for (int item; (item = work.next()) >= 0;) {
    const int kv_head = item / chunks_, chunk = item % chunks_;
    for (int first = 0; first < rows_; first += kBlockRows) {
      const int rows = std::min(kBlockRows, rows_ - first);
      const size_t entry = (static_cast<size_t>(item) * rows_ + first) * group;
      kernels_.attend_chunk(attention_block(layer, kv_head, first, rows), chunk,
                            model_.partials_.at(entry, width), walk.scratch.scores.data());
    }
  }
}

void ForwardPass::combine_row(int row, float* out) {
  const int width = shape_.head_width(), group = shape_.group();
  const int chunks = (plan_.paths[row].positions() + kChunk - 1) / kChunk;
  std::fill(out + shape_.heads * width, out + shape_.attention_width(), 0.0f);
  for (int head = 0; head < shape_.heads; head++) {
    const size_t item = static_cast<size_t>(head / group) * chunks_;
    const size_t entry = (item * rows_ + row) * group + head % group;
    kernels_.combine_chunks(model_.partials_.at(entry, width), chunks, rows_ * group, width,
                            out + head * width);
  }
}

// An item is 16 rows of one key/value head, over all their chunks; later rows have more to do, so
// they come first.
void ForwardPass::attend_many(Walk& walk, int layer) {
  const int width = shape_.head_width(), group = shape_.group();
  const int blocks = (rows_ + kBlockRows - 1) / kBlockRows;
  PartialBuffer& partials = walk.scratch.partials;
  WorkShare work = share(walk, shape_.kv_heads * blocks);
  for (int item; (item = work.next()) >= 0;) {
    const int kv_head = item % shape_.kv_heads;
    const int first = (blocks - 1 - item / shape_.kv_heads) * kBlockRows;
    const int rows = std::min(kBlockRows, rows_ - first), entries = rows * group;
    const AttentionBlock block = attention_block(layer, kv_head, first, rows);
    const int longest = plan_.paths[first + rows - 1].positions();
    for (int chunk = 0; chunk * kChunk < longest; chunk++) {
      kernels_.attend_chunk(block, chunk, partials.at(static_cast<size_t>(chunk) * entries, width),
                            walk.scratch.scores.data());
    }
    for (int i = 0; i < rows; i++) {
      const int chunks = (plan_.paths[first + i].positions() + kChunk - 1) / kChunk;
      float* out = model_.attention_.data() +
                   static_cast<size_t>(first + i) * shape_.attention_width();
      for (int g = 0; g < group; g++) {
        kernels_.combine_chunks(partials.at(i * group + g, width), chunks, entries, width,
                                out + (kv_head * group + g) * width);
      }
    }
  }
}

}  // namespace swiftspec
