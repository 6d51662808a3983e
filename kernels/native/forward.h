// The forward pass of a decoder-only transformer with RMSNorm, rotary positions, grouped-query
// attention and a SwiGLU network (Llama, Qwen2, Qwen3), for the rows of one plan. Every thread of
// the pool runs `run`; phases end in barriers.
#pragma once

#include "model.h"

namespace swiftspec {

class ForwardPass {
 public:
  // Up to here every thread quantises all rows for itself: cheaper than a barrier.
  static constexpr int kFewRows = 4;

  ForwardPass(Model& model, const RowPlan& plan, KvCache& cache, float* logits);

  static int phases(const Shape& shape);
  void run(int thread);

 private:
  // One thread's walk through the phases.
  struct Walk {
    int thread;
    int phase;
    ThreadScratch& scratch;
  };

  WorkShare share(Walk& walk, int items);
  void embed(Walk& walk);
  void project_qkv(Walk& walk, int layer);
  void settle(int layer, int head);
  void finish_head(Walk& walk, int layer, int head, int first, int rows);
  void attend(Walk& walk, int layer);
  void attend_few(Walk& walk, int layer);
  void attend_many(Walk& walk, int layer);
  AttentionBlock attention_block(int layer, int kv_head, int first, int rows);
  void combine_row(int row, float* out);
  void add_to_residual(Walk& walk, const SwiftspecLinear& linear, int width);
  void project_gate_up(Walk& walk, const SwiftspecLinear& linear);
  void project_logits(Walk& walk);

  template <class RowInput>
  void quantise(Walk& walk, int first, int width, RowInput input);
  void quantise_norm(Walk& walk, int first, const float* gain);
  void quantise_attention(Walk& walk);
  void quantise_gated(Walk& walk);
  template <class Epilogue>
  void multiply(Walk& walk, const SwiftspecLinear& linear, int panels, int width, int first,
                Epilogue epilogue);
  static const uint8_t* ahead_of(const SwiftspecLinear& linear, int next, int panels, int width);

  float* residual(int row) {
    return model_.residual_.data() + static_cast<size_t>(row) * shape_.hidden_width();
  }
  float* query(int kv_head, int row) {
    const size_t per_row = static_cast<size_t>(shape_.group()) * shape_.head_width();
    return model_.queries_.data() + (static_cast<size_t>(kv_head) * rows_ + row) * per_row;
  }
  const QuantisedRows& quantised(Walk& walk) const {
    return rows_ <= kFewRows ? walk.scratch.rows : model_.rows_;
  }

  Model& model_;
  const Shape& shape_;
  const KernelTable& kernels_;
  const RowPlan& plan_;
  KvCache& cache_;
  float* logits_;
  int rows_, threads_, chunks_;
};

}  // namespace swiftspec
