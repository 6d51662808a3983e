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
  const size_t prefix = planes * positions_ * width_, tail = planes * kMaxTreeRows * width_;
  return keys_.reserve(prefix) && values_.reserve(prefix) && tail_keys_.reserve(tail) &&
         tail_values_.reserve(tail);
}

uint64_t KvCache::bytes(const Shape& shape, int capacity) {
  const uint64_t planes = static_cast<uint64_t>(shape.layers) * shape.kv_heads;
  const uint64_t positions = round_up(capacity, kLanes) + kMaxTreeRows;
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

void KvCache::set_pending(const int32_t* parents, int rows) {
  std::copy(parents, parents + rows, parents_);
  pending_ = rows;
}

bool KvCache::commit(const int32_t* path, int rows) {
  int32_t parent = -1;
  for (int i = 0; i < rows; i++) {
    const int32_t slot = path[i];
    if (slot < 0 || slot >= pending_ || parents_[slot] != parent) return false;
    parent = slot;
  }
  if (rows < 0 || length_ + rows > capacity_) return false;
  for (int layer = 0; layer < layers_; layer++) {
    for (int head = 0; head < kv_heads_; head++) {
      for (int i = 0; i < rows; i++) move_row(layer, head, path[i], length_ + i);
    }
  }
  advance(rows);
  return true;
}

void KvCache::move_row(int layer, int head, int slot, int position) {
  const auto block = [this](bf16* keys, int row) {
    return keys + static_cast<size_t>(row / kLanes) * width_ * kLanes + row % kLanes;
  };
  const bf16* from = block(tail_keys(layer, head), slot);
  bf16* to = block(keys(layer, head), position);
  for (int d = 0; d < width_; d++) to[d * kLanes] = from[d * kLanes];
  const bf16* value = tail_values(layer, head) + static_cast<size_t>(slot) * width_;
  std::copy(value, value + width_, values(layer, head) + static_cast<size_t>(position) * width_);
}

bool KvCache::truncate(int length) {
  if (length < 0 || length > length_) return false;
  length_ = length;
  pending_ = 0;
  return true;
}

}  // namespace swiftspec
