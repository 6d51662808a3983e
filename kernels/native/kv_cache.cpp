#include "kv_cache.h"

#include <algorithm>

namespace swiftspec {

bool KvCache::start(const Shape& shape, int capacity, const KernelTable& kernels) {
  kernels_ = &kernels;
  layers_ = shape.layers;
  kv_heads_ = shape.kv_heads;
  width_ = shape.head_width();
  capacity_ = capacity;
  positions_ = round_up(capacity, kLanes);
  const size_t planes = static_cast<size_t>(layers_) * kv_heads_;
  const size_t prefix = planes * positions_ * width_, tail = planes * kMaxPending * width_;
  return keys_.reserve(prefix) && values_.reserve(prefix) && tail_keys_.reserve(tail) &&
         tail_values_.reserve(tail);
}

uint64_t KvCache::bytes(const Shape& shape, int capacity) {
  const uint64_t planes = static_cast<uint64_t>(shape.layers) * shape.kv_heads;
  const uint64_t positions = round_up(capacity, kLanes) + kMaxPending;
  return 2 * planes * positions * shape.head_width() * sizeof(bf16);
}

bf16* KvCache::key_at(int layer, int head, bool in_tail, int row) {
  bf16* plane = in_tail ? tail_keys(layer, head) : keys(layer, head);
  const int64_t stride = in_tail ? tail_stride() : static_cast<int64_t>(width_) * kLanes;
  return plane + row / kLanes * stride + row % kLanes;
}

bf16* KvCache::value_at(int layer, int head, bool in_tail, int row) {
  if (!in_tail) return values(layer, head) + static_cast<size_t>(row) * width_;
  return tail_values(layer, head) + row / kLanes * tail_stride() + row % kLanes * width_;
}

void KvCache::store_key(int layer, int head, bool in_tail, int row, const float* key) {
  bf16* to = key_at(layer, head, in_tail, row);
  for (int d = 0; d < width_; d++) to[d * kLanes] = to_bf16(key[d]);
}

void KvCache::store_value(int layer, int head, bool in_tail, int row, const float* value) {
  bf16* to = value_at(layer, head, in_tail, row);
  for (int d = 0; d < width_; d++) to[d] = to_bf16(value[d]);
}

void KvCache::advance(int rows) {
  length_ += rows;
  pending_ = 0;
}

void KvCache::set_pending(const int32_t* parents, int first, int rows) {
  std::copy(parents, parents + rows, parents_ + first);
  pending_ = first + rows;
}

bool KvCache::is_path(const int32_t* path, int rows) const {
  int32_t parent = -1;
  for (int i = 0; i < rows; i++) {
    const int32_t slot = path[i];
    if (slot < 0 || slot >= pending_ || parents_[slot] != parent) return false;
    parent = slot;
  }
  return rows >= 0 && length_ + rows <= capacity_;
}

bool KvCache::reroot(const int32_t* path, int rows, const int32_t* keep, int kept) {
  if (!is_path(path, rows) || kept < 0 || kept > pending_) return false;
  const int32_t end = rows > 0 ? path[rows - 1] : -1;
  int32_t moved[kMaxPending], parents[kMaxPending];  // by old slot, by new slot
  std::fill(moved, moved + pending_, -1);
  for (int i = 0; i < kept; i++) {
    const int32_t slot = keep[i];
    if (slot <= (i > 0 ? keep[i - 1] : -1) || slot >= pending_) return false;
    const int32_t parent = parents_[slot];
    if (parent != end && (parent < 0 || moved[parent] < 0)) return false;
    parents[i] = parent == end ? -1 : moved[parent];
    moved[slot] = i;
  }
  settle();
  std::copy_n(path, rows, to_prefix_.from);
  to_prefix_.rows = rows;
  to_prefix_.to = length_;
  int still = 0;  // rows at the front that stay where they are
  while (still < kept && keep[still] == still) still++;
  std::copy(keep + still, keep + kept, to_front_.from);
  to_front_.rows = kept - still;
  to_front_.to = still;
  advance(rows);
  set_pending(parents, 0, kept);
  return true;
}

// Within the tail rows only move to lower slots, in ascending order: none is overwritten unread.
void KvCache::settle_keys(int layer, int head) {
  const int64_t stride = static_cast<int64_t>(width_) * kLanes;
  bf16* tail = tail_keys(layer, head);
  kernels_->gather_keys(tail, tail_stride(), to_prefix_.from, to_prefix_.rows, keys(layer, head),
                        stride, to_prefix_.to, width_);
  kernels_->gather_keys(tail, tail_stride(), to_front_.from, to_front_.rows, tail, tail_stride(),
                        to_front_.to, width_);
}

void KvCache::settle_values(int layer, int head) {
  for (const Moves* moves : {&to_prefix_, &to_front_}) {
    for (int i = 0; i < moves->rows; i++) {
      std::copy_n(value_at(layer, head, true, moves->from[i]), width_,
                  value_at(layer, head, moves == &to_front_, moves->to + i));
    }
  }
}

void KvCache::settled() { to_prefix_.rows = to_front_.rows = 0; }

void KvCache::settle() {
  if (to_prefix_.rows + to_front_.rows == 0) return;
  for (int layer = 0; layer < layers_; layer++) {
    for (int head = 0; head < kv_heads_; head++) {
      settle_keys(layer, head);
      settle_values(layer, head);
    }
  }
  settled();
}

void KvCache::read(int layer, bool in_tail, int row, float* keys_out, float* values_out) {
  settle();
  for (int head = 0; head < kv_heads_; head++) {
    const bf16* key = key_at(layer, head, in_tail, row);
    const bf16* value = value_at(layer, head, in_tail, row);
    for (int d = 0; d < width_; d++) {
      keys_out[head * width_ + d] = from_bf16(key[d * kLanes]);
      values_out[head * width_ + d] = from_bf16(value[d]);
    }
  }
}

bool KvCache::truncate(int length) {
  if (length < 0 || length > length_) return false;
  length_ = length;
  pending_ = 0;
  return true;
}

}  // namespace swiftspec
