// Keys and values of one sequence, in bfloat16: a committed prefix, then at most one pending tree
// in a tail of its own. Knows nothing of how they are computed.
//
// Keys lie in blocks of 16 positions, [position / 16][head width][16], so that one vector holds
// the same channel of 16 positions; values as [position][head width]. The tail has the same form,
// by slot instead of position.
#pragma once

#include <cstdint>

#include "bf16.h"
#include "storage.h"
#include "shape.h"

namespace swiftspec {

class KvCache {
 public:
  // False if there is no memory.
  bool start(const Shape& shape, int capacity);

  static uint64_t bytes(const Shape& shape, int capacity);

  int length() const { return length_; }
  int capacity() const { return capacity_; }
  int width() const { return width_; }

  bf16* keys(int layer, int head) { return keys_.data() + plane(layer, head) * positions_ * width_; }
  bf16* values(int layer, int head) {
    return values_.data() + plane(layer, head) * positions_ * width_;
  }
  bf16* tail_keys(int layer, int head) {
    return tail_keys_.data() + plane(layer, head) * kMaxTreeRows * width_;
  }
  bf16* tail_values(int layer, int head) {
    return tail_values_.data() + plane(layer, head) * kMaxTreeRows * width_;
  }

  // Writes one head's key or value ([width] fp32) at a position, or at a slot of the tail.
  void store_key(bf16* keys, int position, const float* key) const;
  void store_value(bf16* values, int position, const float* value) const;

  // `rows` more positions of the prefix have been written; a pending tree is dropped.
  void advance(int rows);
  // The tail holds a tree of `rows` rows.
  void set_pending(const int32_t* parents, int rows);
  // False, and nothing changes, if `path` is not a root-to-node path of the pending tree.
  bool commit(const int32_t* path, int rows);
  bool truncate(int length);

 private:
  size_t plane(int layer, int head) const { return static_cast<size_t>(layer) * kv_heads_ + head; }
  void move_row(int layer, int head, int slot, int position);

  int layers_ = 0, kv_heads_ = 0, width_ = 0, capacity_ = 0;
  size_t positions_ = 0;  // capacity in whole blocks
  int length_ = 0;
  int pending_ = 0;  // rows of the tree in the tail
  int32_t parents_[kMaxTreeRows];
  AlignedBuffer<bf16> keys_, values_, tail_keys_, tail_values_;
};

}  // namespace swiftspec
