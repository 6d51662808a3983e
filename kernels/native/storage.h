// Memory without C++'s run-time library: nothing here throws, and every request may be refused.
// (The library needs none of libstdc++ or libc++, so that it can be built and loaded without them.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace swiftspec {

// A zeroed array of plain values that starts on a cache line; empty until room is made. Large ones
// take memory only where they are touched.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(raw_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }

  // Makes room for `count` values; the old ones are lost when it grows. False if there is none.
  bool reserve(size_t count) {
    if (count <= count_) return true;
    std::free(raw_);
    raw_ = std::calloc(count * sizeof(T) + kAlignment, 1);
    count_ = raw_ == nullptr ? 0 : count;
    const auto address = reinterpret_cast<uintptr_t>(raw_);
    data_ = reinterpret_cast<T*>((address + kAlignment - 1) / kAlignment * kAlignment);
    return raw_ != nullptr;
  }

 private:
  static constexpr size_t kAlignment = 64;

  void* raw_ = nullptr;
  T* data_ = nullptr;
  size_t count_ = 0;
};

inline void* allocate(size_t bytes, size_t alignment) {
#if defined(_WIN32)
  return _aligned_malloc(bytes, alignment);
#else
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
#endif
}

inline void release(void* memory) {
#if defined(_WIN32)
  _aligned_free(memory);
#else
  std::free(memory);
#endif
}

template <class T>
void destroy(T* object) {
  if (object == nullptr) return;
  object->~T();
  release(object);
}

// A new T, or null. T::start(...) gets the arguments and says whether it has all it needs.
template <class T, class... Arguments>
T* create(Arguments&&... arguments) {
  void* memory = allocate(sizeof(T), alignof(T) < 64 ? 64 : alignof(T));
  if (memory == nullptr) return nullptr;
  T* object = new (memory) T();
  if (object->start(std::forward<Arguments>(arguments)...)) return object;
  destroy(object);
  return nullptr;
}

}  // namespace swiftspec
