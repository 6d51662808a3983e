#include "kv_cache.h"

#include <algorithm>

namespace swiftspec {

bool KvCache::start(const Shape& shape, int capacity) {
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

void KvCache::store_key(bf16* keys, int position, const float* key) const {
  bf16* block = keys + static_cast<size_t>(position / kLanes) * width_ * kLanes + position % kLanes;
  for (int d = 0; d < width_; d++) block[d * kLanes] = to_bf16(key[d]);
}

void KvCache::store_value(bf16* values, int position, const float* value) const {
  bf16* row = values + static_cast<size_t>(position) * width_;
  for (int d = 0; d < width_; d++) row[d] = to_bf16(value[d]);
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
  int still = 0;  // rows at the front that stay where they are
  while (still < kept && keep[still] == still) still++;
  for (int layer = 0; layer < layers_; layer++) {
    for (int head = 0; head < kv_heads_; head++) {
      bf16 *tail_k = tail_keys(layer, head), *tail_v = tail_values(layer, head);
      move_keys(tail_k, path, keys(layer, head), length_, rows);
      move_keys(tail_k, keep + still, tail_k, still, kept - still);
      move_values(tail_v, path, values(layer, head), length_, rows);
      move_values(tail_v, keep + still, tail_v, still, kept - still);
    }
  }
  advance(rows);
  set_pending(parents, 0, kept);
  return true;
}

// Within one plane rows only move to lower places, in ascending order: none is overwritten unread.
void KvCache::move_keys(const bf16* from_plane, const int32_t* from, bf16* to_plane, int to,
                        int rows) const {
  const auto offset = [this](int row) {
    return static_cast<size_t>(row / kLanes) * width_ * kLanes + row % kLanes;
  };
  for (int i = 0; i < rows; i++) {
    const bf16* source = from_plane + offset(from[i]);
    bf16* target = to_plane + offset(to + i);
    for (int d = 0; d < width_; d++) target[d * kLanes] = source[d * kLanes];
  }
}

void KvCache::move_values(const bf16* from_plane, const int32_t* from, bf16* to_plane, int to,
                          int rows) const {
  for (int i = 0; i < rows; i++) {
    std::copy_n(from_plane + static_cast<size_t>(from[i]) * width_, width_,
                to_plane + static_cast<size_t>(to + i) * width_);
  }
}

void KvCache::read(int layer, bool in_tail, int row, float* keys_out, float* values_out) {
  for (int head = 0; head < kv_heads_; head++) {
    const bf16* plane = in_tail ? tail_keys(layer, head) : keys(layer, head);
    const bf16* key = plane + static_cast<size_t>(row / kLanes) * width_ * kLanes + row % kLanes;
    plane = in_tail ? tail_values(layer, head) : values(layer, head);
    const bf16* value = plane + static_cast<size_t>(row) * width_;
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
