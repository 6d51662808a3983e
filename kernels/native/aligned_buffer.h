// A zeroed array that starts on a cache line. Large ones take memory only where they are touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace swiftspec {

template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t count) {
    if (count == 0) return;
    raw_ = std::calloc(count * sizeof(T) + kAlignment, 1);
    if (raw_ == nullptr) throw std::bad_alloc();
    const auto address = reinterpret_cast<uintptr_t>(raw_);
    data_ = reinterpret_cast<T*>((address + kAlignment - 1) / kAlignment * kAlignment);
    count_ = count;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~AlignedBuffer() { std::free(raw_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }

  // Makes room for `count` values; the old ones are lost when it grows.
  void ensure(size_t count) {
    if (count > count_) *this = AlignedBuffer(count);
  }

 private:
  static constexpr size_t kAlignment = 64;

  void swap(AlignedBuffer& other) {
    std::swap(raw_, other.raw_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
  }

  void* raw_ = nullptr;
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace swiftspec
