// Keys and values of one sequence, in bfloat16: a committed prefix, then at most one pending tree
// in a tail of its own that grows, and whose root moves on as tokens are verified (the evolving
// tree cache of SwiftSpec, section 3.2). Knows nothing of how they are computed.
//
// Keys lie in blocks of 16 positions, [position / 16][head width][16], so that one vector holds
// the same channel of 16 positions; values as [position][head width]. The tail has the same form, by
// slot instead of position, but 16 slots of all layers and heads lie together: re-rooting goes
// through all of them.
#pragma once

#include <cstdint>

#include "bf16.h"
#include "kernel_table.h"
#include "storage.h"
#include "shape.h"

namespace swiftspec {

class KvCache {
 public:
  // False if there is no memory.
  bool start(const Shape& shape, int capacity, const KernelTable& kernels);

  static uint64_t bytes(const Shape& shape, int capacity);

  int length() const { return length_; }
  int capacity() const { return capacity_; }
  int layers() const { return layers_; }

  bf16* keys(int layer, int head) { return keys_.data() + plane(layer, head) * positions_ * width_; }
  bf16* values(int layer, int head) {
    return values_.data() + plane(layer, head) * positions_ * width_;
  }
  bf16* tail_keys(int layer, int head) {
    return tail_keys_.data() + plane(layer, head) * kLanes * width_;
  }
  bf16* tail_values(int layer, int head) {
    return tail_values_.data() + plane(layer, head) * kLanes * width_;
  }
  // From one 16 slots of a layer's head to the next.
  int64_t tail_stride() const { return static_cast<int64_t>(layers_) * kv_heads_ * kLanes * width_; }

  // Writes one head's key or value ([width] fp32) at a position, or at a slot of the tail.
  void store_key(int layer, int head, bool in_tail, int row, const float* key);
  void store_value(int layer, int head, bool in_tail, int row, const float* value);

  // `rows` more positions of the prefix have been written; a pending tree is dropped.
  void advance(int rows);
  // Rows of the tree in the tail, and the parent of each (-1 for the prefix's end).
  int pending() const { return pending_; }
  const int32_t* parents() const { return parents_; }
  // Slots [first, first + rows) of the tail have been written; slots before `first` stay.
  void set_pending(const int32_t* parents, int first, int rows);
  // Moves the slots of a root-to-node path into the prefix and the slots `keep`, ascending, to the
  // tail's front. False, and nothing changes, unless it is a path and each kept row's parent is
  // kept or the path's end. The rows are moved when a layer is next worked on, which has to fetch
  // them into the near caches anyway: `settle_keys` and `settle_values` for each layer and head,
  // before anything of it is read or written, and `settled` at last.
  bool reroot(const int32_t* path, int rows, const int32_t* keep, int kept);
  void settle_keys(int layer, int head);
  void settle_values(int layer, int head);
  void settled();
  bool truncate(int length);
  // One position, or slot, of a layer as fp32 [kv heads][width] each.
  void read(int layer, bool in_tail, int row, float* keys, float* values);

 private:
  size_t plane(int layer, int head) const { return static_cast<size_t>(layer) * kv_heads_ + head; }
  // Tail slots, ascending, that go to the rows from `to` on.
  struct Moves {
    int32_t from[kMaxPending];
    int rows = 0;
    int to = 0;
  };

  bool is_path(const int32_t* path, int rows) const;
  void settle();
  // The first channel of a key, [width] at distances of 16, and of a value, [width].
  bf16* key_at(int layer, int head, bool in_tail, int row);
  bf16* value_at(int layer, int head, bool in_tail, int row);

  const KernelTable* kernels_ = nullptr;
  int layers_ = 0, kv_heads_ = 0, width_ = 0, capacity_ = 0;
  size_t positions_ = 0;  // capacity in whole blocks
  int length_ = 0;
  int pending_ = 0;  // rows of the tree in the tail
  int32_t parents_[kMaxPending];
  Moves to_prefix_, to_front_;  // of a re-rooting, in this order; yet to be done
  AlignedBuffer<bf16> keys_, values_, tail_keys_, tail_values_;
};

}  // namespace swiftspec
